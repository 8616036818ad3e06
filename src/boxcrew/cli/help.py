"""The help texts of the commands: usage, settings and examples."""

from __future__ import annotations

HELP = {
    "train": """Train a detector, or another kind of network.

    Usage:
      boxcrew train [RECIPE | FILE.yaml] [data=PATH] [key=value ...]

    The default recipe is 'starter', a detector that suits a CPU. The recipes fc,
    cnn, rnn and gan train other kinds of networks; 'boxcrew recipes' lists all.

    Settings:
      data=PATH            data set: VOC, COCO, YOLO, ...; default: an embedded one
      epochs=20            length of the run; or steps=1000; time=15m may be added:
                           the run ends at what comes first
      batch=16             samples of a step, over all devices
      size=320             side of the input in pixels
      init=pretrained      or scratch, finetune (init.checkpoint=RUN)
      optim.rate=0.001     learning rate
      seed=0               seed of everything random
      device=auto          or cpu, cuda, cuda:0, cuda:0,cuda:1
      out=DIR              directory of the run; default: a new one under runs/
      name=NAME            its name under runs/
      on=ray               train on a cluster of Ray, that of RAY_ADDRESS or one
                           here; deploy.replicas=2, or 1:4 as there is room

    'boxcrew settings' lists all settings, 'boxcrew recipes NAME' those of a recipe.

    Examples:
      boxcrew train data=photos epochs=30
      boxcrew train ssd300_vgg16 data=photos/data.yaml batch=8 time=2h
      boxcrew train data=photos optim=adamw optim.rate=1e-3 --explain
    """,
    "plan": """Show how a run would use the machine: memory, seconds, and why.

    Usage:
      boxcrew plan [RECIPE | FILE.yaml] [data=PATH] [key=value ...]
                   [--assume MACHINE]

    Takes the settings of 'boxcrew train'. A few steps are measured in a separate
    process, for at most 20 s.

    Settings:
      trial=false          do not measure steps
      goal=fastest         or smallest, deadline:2h, budget:8GB: what to plan for
      out=plan.json        write the plan, for 'boxcrew train ... plan=plan.json'
      out=plan.png         draw the plan
      --assume MACHINE     such as "2x24GB-gpu, 16 cores, 64GB", or a file that
                           'boxcrew devices --json' wrote

    Examples:
      boxcrew plan data=photos epochs=30
      boxcrew plan ssd300_vgg16 data=photos --assume "24GB-gpu, 8 cores, 32GB"
      boxcrew plan data=photos goal=smallest out=plan.json
    """,
    "join": """Add this computer to a running training, as one more replica.

    Usage:
      boxcrew join HOST:PORT [data=PATH] [loader.workers=2]

    The training must have room: deploy.replicas=1:4 deploy.logical_clones=4 has
    room for four. It prints the address. Everything but the place of the data set
    and the number of loader workers comes from there.

    Examples:
      boxcrew join 127.0.0.1:29500
      boxcrew join trainer.local:29500 data=/mnt/photos
    """,
    "resume": """Continue a run that was stopped, or extend one that is finished.

    Usage:
      boxcrew resume run=DIR [key=value ...]

    The result is the same as if the run had never stopped.

    Settings:
      run=DIR              directory of the run
      epochs=40            new length of the run, from its start; or steps=, time=
      device=auto          where to continue

    Settings that would change what was learned before are refused.

    Examples:
      boxcrew resume run=runs/detect/train
      boxcrew resume run=runs/detect/train epochs=40
    """,
    "watch": """Show a live page of trainings: curves, plan, predictions, time left.

    Usage:
      boxcrew watch [run=DIR,...] [key=value ...]

    DIR is a run, a comparison, or a folder of runs. The page only reads their
    files: trainings do not know of it, and it shows those that have ended too.
    Open the address that is printed; Ctrl-C ends the page, not the trainings.

    Settings:
      run=runs             what to watch, several with commas between
      port=8001            of the page; 0 for any that is free
      host=127.0.0.1       address to listen on; any that others can reach needs a
                           token
      token=SECRET         secret that the page asks for; or set BOXCREW_TOKEN

    Examples:
      boxcrew watch
      boxcrew watch run=runs/detect/train
      boxcrew watch run=runs/detect/train,runs/detect/train-2
    """,
    "submit": """Hand a training to a scheduler: write its job, and submit it.

    Usage:
      boxcrew submit slurm|jobset|rayjob|sky [RECIPE] data=PATH out=DIR
                     [key=value ...] [--dry-run]

    Takes the settings of 'boxcrew train'. The training is planned for the nodes of
    the cluster: the job asks for their cores, memory and GPUs. A job that is
    restarted, after its time limit or a failure, continues the same run.

    Settings:
      out=DIR              directory or URL of the run, as the job sees it
      submit.nodes=2       machines; 1:4 takes as many as there are (slurm, rayjob)
      submit.node="2x24GB-gpu, 16 cores, 64GB"
                           one of them; default: like this one
      submit.data=PATH     where the job finds the data, if elsewhere than here
      submit.file=FILE     file to write; default: a new one here
      submit.time=4h       slurm: time limit of a start; default: as predicted
      submit.partition= submit.account=          slurm
      submit.setup='. venv/bin/activate'         slurm and sky: runs before
      submit.image=IMAGE submit.volume=CLAIM:/data submit.namespace=
                                                 jobset and rayjob
      submit.gpu=A100 submit.spot=false          sky
      submit.restarts=10   restarts after failures, at most
      --dry-run            write the file, submit nothing

    Examples:
      boxcrew submit slurm data=photos out=runs/a submit.nodes=2 --dry-run
      boxcrew submit jobset data=photos submit.data=/data/photos out=/data/runs/a \\
          submit.image=registry/boxcrew:1 submit.volume=photos:/data
    """,
    "val": """Measure a trained network on a data set.

    Usage:
      boxcrew val run=DIR [data=PATH] [key=value ...]

    Settings:
      run=DIR              directory of the run, a weight file or an exported file
      data=PATH            data set; default: that of the run
      format=auto          format of the data set
      split=val            or test, train, all
      weights=best         or last, both
      batch=16             samples that are evaluated at once
      device=auto          or cpu, cuda, cuda:0
      engine=auto          for an exported file: the fastest of onnxruntime and
                           openvino, measured for two seconds

    Examples:
      boxcrew val run=runs/detect/train split=test
      boxcrew val run=runs/detect/train data=other_photos split=all --json
    """,
    "predict": """Use a trained network: detect, classify, continue text, make images.

    Usage:
      boxcrew predict run=DIR source=SOURCE [score=0.25]       a detector
      boxcrew predict run=DIR source=SOURCE|TABLE.csv|TEXTS    a classifier
      boxcrew predict run=DIR [text=TEXT] [num=400]            a language model
      boxcrew predict run=DIR [num=64]                         a GAN

    Sources:
      photo.jpg            an image
      FOLDER               all images in it, at any depth
      'photos/*.png'       a pattern, quoted
      list.txt             a path on each line
      -                    an image from stdin
      https://...          an image, with download=true
      clip.mp4             a video (detectors only)
      0                    a camera (detectors only), until Ctrl-C

    Settings:
      run=DIR              directory of the run, a weight file or an exported file
      score=0.25           detections with a lower score are not shown
      format=cvat          also write the boxes as a data set, to be corrected in a
                           labeling tool: voc, coco, yolo, labelme, label_studio
      stride=5 frames=100  every fifth frame of a video or camera, at most 100
      out=DIR              directory of the results; default: runs/.../predict
      weights=best         or last
      device=auto          or cpu, cuda, cuda:0
      temperature=0.8      of a language model: lower is less varied
      seed=0               of a language model or GAN

    Examples:
      boxcrew predict run=runs/detect/train source=photos/new
      boxcrew predict run=runs/detect/train source=clip.mp4 stride=2 out=found
      boxcrew predict run=runs/sequence/train text="The shop" num=200
    """,
    "export": """Write a trained network as a file for other programs, and prove it.

    Usage:
      boxcrew export run=DIR [key=value ...]

    The file is tried on the validation photos before it is written: it has to
    find the same boxes as the network (0.01 pixels, scores 0.0001). With int8 it
    may lose a little AP, which is shown. 'val' and 'predict' take the file as
    run=FILE; Detector.load(FILE) needs no torch.

    Settings:
      run=DIR              directory of the run, or a weight file
      format=onnx          or openvino, executorch, ncnn, torch
      out=FILE             file to write; default: DIR/export/model.onnx
      nms=true             the file chooses the detections itself
      int8=true            integers of 8 bits, calibrated with training photos
      max_loss=0.005       AP that int8 may lose; force=true writes it anyway
      size=320             another size of the input than in training
      data=PATH            data set to prove it on; default: that of the run
      proof=false          write it unproved
      triton=true          also write a model folder for Triton

    Examples:
      boxcrew export run=runs/detect/train
      boxcrew export run=runs/detect/train int8=true
      boxcrew val run=runs/detect/train/export/model.onnx data=photos
    """,
    "compare": """Train several detectors on the same data, and compare them.

    Usage:
      boxcrew compare data=PATH detectors=all|A,B,... [key=value ...]
      boxcrew compare runs=DIR,DIR,...

    detectors=all trains rcnn, sppnet, fast_rcnn, faster_rcnn_mobile, yolo and
    ssdlite on one backbone. Settings of 'boxcrew train' apply to every run.
    The result is a table, a scatter, pictures and a page. 'boxcrew resume
    run=DIR' continues a comparison that was stopped.

    Settings:
      time=10m             for each detector; or epochs=, steps=
      out=DIR              directory of the comparison; default: a new one

    Examples:
      boxcrew compare data=photos detectors=all time=10m
      boxcrew compare data=photos detectors=starter,yolo epochs=5
      boxcrew compare runs=runs/detect/train,runs/detect/train-2
    """,
    "tune": """Search for better settings, within the time you have.

    Usage:
      boxcrew tune [RECIPE] data=PATH time=2h [search=SPACE] [key=value ...]
      boxcrew tune report study=DIR
      boxcrew tune resume study=DIR
      boxcrew tune join study=DIR [workers=N]

    Trains the recipe's settings and many variants of them; bad ones are stopped
    early, and the best is trained to the end. Settings of 'boxcrew train' apply to
    every trial. 'resume' continues a study that was stopped.

    Settings:
      time=2h              of the whole study; or trials=30
      search=default       what varies; or optimizer, augmentation, all
      search.KEY=A,B,C     the values of a setting, or its range: LOW..HIGH,
                           LOW..HIGH:log, LOW..HIGH:STEP
      steps=1000           length of a trial; or epochs=; default: the recipe's
      sampler=auto         or tpe, cma, random, grid
      pruner=auto          or halving, hyperband, median, none
      workers=1            trials at once
      on=join              other machines train them: those that run 'boxcrew tune
                           join'; or ray, a cluster
      storage=URL          keep Optuna's storage elsewhere: sqlite:///study.db
      out=DIR              directory of the study; default: a new one

    Examples:
      boxcrew tune data=photos time=2h
      boxcrew tune data=photos trials=20 search.optim.rate=1e-4..1e-2:log
      boxcrew train recipe=study=runs/tune/study:best data=photos
    """,
    "proposals": """Propose regions of images, and say how many objects they cover.

    Usage:
      boxcrew proposals data=PATH [method=fast|quality|RUN] [count=500]

    rcnn, sppnet and fast_rcnn start from these regions (selective search). They
    are stored, so that training finds them again.

    Settings:
      method=fast          12 segmentations of an image; quality: 80; the directory
                           of a run of faster_rcnn: what that proposes
      count=500            proposals of an image, at most

    Examples:
      boxcrew proposals data=photos
    """,
    "data": """Show what is in a data set, convert it, or pack it for object storage.

    Usage:
      boxcrew data PATH [out=sheet.jpg]
      boxcrew data convert PATH out=DIR format=FORMAT
      boxcrew data pack data=PATH out=DIR_OR_URL [shard=256MB]

    PATH may also be shelf, the embedded set. Problems of the data are reported;
    --json names all of them. Nothing of the data set is changed.

    Settings:
      out=sheet.jpg        draw training images with their boxes
      out=DIR              of convert: a new folder
      format=FORMAT        of convert: voc, coco, yolo, labelme, cvat or
                           label_studio; otherwise the format to read
      read_format=auto     of convert: the format to read
      out=s3://bucket/set  of pack: a new folder or URL, for shards and an index
      shard=256MB          of pack: the most bytes of a shard
      data.coordinates=pixels, data.boxes=, data.first_class=, data.rescale=
                           how to read boxes, if a warning names one of them

    Examples:
      boxcrew data photos
      boxcrew data convert photos out=photos_coco format=coco
      boxcrew data pack data=photos out=s3://bucket/photos
    """,
    "serve": """Serve a detector over HTTP, with a page in the browser to try it.

    Usage:
      boxcrew serve run=DIR_OR_FILE [key=value ...]
      boxcrew serve runs=A,B [key=value ...]

    A run is exported and proved first, unless it has an exported file. The service
    needs no torch. It answers what 'val' has measured, at /v1/detect; / is the page,
    /docs lists all routes. A signal ends it when all it has accepted is answered.

    Settings:
      run=DIR              directory of a run, or an exported file
      runs=A,B             several of them
      port=8000            0 takes any that is free
      host=127.0.0.1       address; any but a local one needs a token
      token=SECRET         what clients have to send; or set BOXCREW_TOKEN
      int8=true            serve runs with integers of 8 bits
      engine=auto          the library that is fastest here
      workers=2            photos computed at once; default: one on each core
      queue=32             photos that may wait, then clients are asked to wait
      timeout=10s          from the beginning of a request to its answer
      drain=30s            for what was accepted before a signal
      follow=true          take a new file as soon as one replaces the old

    Examples:
      boxcrew serve run=runs/detect/train
      boxcrew serve run=model.onnx host=0.0.0.0 token=SECRET
      curl -H 'Content-Type: image/jpeg' --data-binary @photo.jpg localhost:8000/v1/detect
    """,
    "status": """Show how far a run is, who trains it, and what was lost.

    Usage:
      boxcrew status run=DIR

    The run may be in training, or have been killed. If a process on another host
    trains it, the command waits up to 15 s for that process's heartbeat.

    Examples:
      boxcrew status run=runs/detect/train
      boxcrew status run=runs/detect/train --json
    """,
    "doctor": """Examine a detection data set and write an HTML page of what to fix.

    Usage:
      boxcrew doctor data=PATH [RECIPE] [key=value ...]
      boxcrew doctor run=DIR [data=PATH]

    Recipe and settings are those of 'boxcrew train'; they choose the detector that
    the boxes are compared with. With run=, the run's detector is used, and labels
    that it contradicts are shown.

    Settings:
      data=PATH            data set of images with boxes
      run=DIR              a run that was trained on it
      detector=ssdlite     detector to compare the boxes with; size= is its input
      data.strict=true     exit code 3 if there is anything to fix
      out=DIR              directory of the page; default: runs/doctor/NAME

    Examples:
      boxcrew doctor data=photos
      boxcrew doctor data=photos run=runs/detect/train out=page
    """,
    "devices": """Show the cores, memory and accelerators of this machine, and their speed.

    Usage:
      boxcrew devices [machine=FILE.json]

    Cores and memory are what the container or the job may use. Speeds are measured
    once, for some seconds. --json prints a description that can be edited.

    Settings:
      machine=FILE.json    show this description instead

    Examples:
      boxcrew devices
      boxcrew devices --json > machine.json
    """,
    "recipes": """List the recipes, or show every setting of one.

    Usage:
      boxcrew recipes [NAME]

    Examples:
      boxcrew recipes
      boxcrew recipes ssd300_vgg16
    """,
    "settings": """List every setting of a run with its default, its type and what it does.

    Usage:
      boxcrew settings [PATTERN]

    PATTERN is part of a key or of its description, or a key with *, ? or [].

    Examples:
      boxcrew settings rate
      boxcrew settings 'optim.*'
    """,
}
