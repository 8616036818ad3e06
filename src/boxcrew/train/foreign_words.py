"""The words of other tools for settings, and what they are called here.

The `_SAME…` tables have what a word is called here; the `_ABSENT…` tables say what to do instead, as there
is no such setting. `key=` in a text names a setting, and a test checks that it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from boxcrew.core.config import Tree
from boxcrew.core.errors import UnknownSettingError, UsageError
from boxcrew.train.settings_reference import list_settings

_CLASSES = "classes are read from the data"
_SHAPES = "transforms.crop=, transforms.expand= and transforms.jitter= change place and size of objects"
_RUN = "run=, a run directory or a weight file"
_OF_THE_RUN = "it is that of the run"

_SAME_SPELLINGS = {
    "optim.rate=": "lr lr0 learning_rate base_lr init_lr optim.lr optim.lr0 optim.learning_rate",
    "schedule.end=, a factor of the learning rate": "lrf min_lr",
    "size=": "imgsz img img_size image_size imgsize input_size resolution crop_size",
    "batch=, over all devices": "batch_size bs batchsize train_batch_size samples_per_gpu batch_size_per_gpu",
    "epochs=": "num_epochs max_epochs n_epochs total_epochs",
    "steps=": "max_steps num_steps iterations iters max_iter max_iters",
    "time=, such as 2h": "max_time",
    "data=": "dataset data_path data_dir data_root dataset_path root train_data",
    "out=": "output output_dir work_dir save_dir outdir log_dir",
    "device=, such as cuda:0 or cuda:0,cuda:1": "gpu gpus gpu_ids devices gpu_id",
    "deploy.replicas=": "world_size nproc_per_node num_gpus n_gpu num_processes",
    "deploy.replicas=, or torchrun, SLURM or MPI": "launcher",
    "optim=; optim=momentum is SGD with momentum": "optimizer optimiser opt solver",
    "optim.weight_decay=": "wd l2",
    "optim.clip=": "grad_clip gradient_clip_val clip_grad_norm max_grad_norm",
    "schedule=": "scheduler lr_scheduler lr_schedule",
    "schedule=cosine, the default": "cos_lr cosine",
    "schedule.warmup=, a fraction of the run": "warmup_epochs warmup_iters warmup_steps warmup_ratio",
    "schedule.at= with schedule=step, fractions of the run": "lr_steps milestones lr_step_size step_size",
    "schedule.decay=": "lr_gamma gamma",
    "recipe= (boxcrew train ssd300_vgg16) or detector=": "model arch architecture cfg yaml model_name",
    "init=finetune init.checkpoint=RUN, or init=pretrained": "weights checkpoint ckpt load_from pretrained",
    "init.weights=": "weights_backbone pretrained_backbone",
    "boxcrew resume run=DIR": "resume resume_from auto_resume",
    "boxcrew val run=DIR": "test_only eval_only",
    "trainable= and unfreeze=": "freeze frozen_stages trainable_backbone_layers",
    "evaluation.patience=": "early_stopping early_stop",
    "evaluation.every_epochs=": "eval_interval val_interval eval_every val_every",
    "saver.every_epochs=": "save_period save_interval checkpoint_interval save_every",
    "summaries.every_steps=": "print_freq log_interval log_every log_every_n_steps",
    "loader.workers=": "num_workers workers_per_gpu dataloader_workers",
    "deploy.precision=": "amp half fp16 bf16 mixed_precision use_amp",
    "deploy.accumulation=": "accumulate accumulate_grad_batches grad_accum gradient_accumulation_steps",
    "deploy.batch_norm=synced": "sync_bn sync_batchnorm",
    "size=256,320,384, one for each step": "multi_scale multiscale",
    "detector.score_threshold=": "conf conf_thres score_thr confidence score",
    "detector.nms_iou=": "iou iou_thres iou_thr nms nms_threshold",
    "detector.max_detections=": "max_det max_per_img detections_per_img",
    "transforms.flip=": "fliplr flip_prob horizontal_flip hflip_prob",
    "transforms.color=": "transforms.colour colour hsv_h hsv_s hsv_v hsv color_jitter brightness contrast "
    "saturation",
    "transforms.jitter= and transforms.expand=": "scale translate zoom",
    "transforms.mosaic=, a probability": "mosaic mosaic_prob mosaic_p",
    "transforms.mixup=, a probability": "mixup_prob mixup_p mix_up",
    "transforms.mix_until=, a fraction of the run": "close_mosaic no_aug_epochs",
}
_ABSENT_SPELLINGS = {
    _CLASSES: "num_classes nc classes names class_names n_classes",
    "give all objects the same class in the labels": "single_cls",
    "out= is the directory of a run, name= its name under runs/": "project",
    "a new run never overwrites one; 'boxcrew resume run=DIR' continues it": "exist_ok overwrite",
    "transforms.flip= mirrors left and right only": "flipud",
    _SHAPES: "degrees rotate rotation shear perspective copy_paste",
    "seed= decides everything random": "deterministic",
    "images have one reader": "backend use_v2",
    "TensorBoard, metrics.jsonl and results.csv are always written": "wandb logger",
    "plots and weights are always written": "plots save",
    "settings are given directly, as key=value": "cfg_options opts",
}
_SAME_FOR_USE = {  # in val and predict
    _RUN: "model checkpoint ckpt weights_path model_path ckpt_path",
}
_ABSENT_FOR_USE = {
    f"{_OF_THE_RUN}: size= in training": "imgsz img_size image_size size resolution",
    f"{_OF_THE_RUN}: detector.nms_iou= in training": "iou iou_thres iou_thr nms",
    f"{_OF_THE_RUN}: detector.max_detections= in training": "max_det max_per_img",
    "it computes in fp32": "half amp fp16",
}


def _by_word(spellings: dict[str, str], form: str) -> dict[str, str]:
    return {word: form.format(text) for text, words in spellings.items() for word in words.split()}


_HERE, _NONE = "here it is {}", "there is none here: {}"
_USE = _by_word(_SAME_FOR_USE, _HERE) | _by_word(_ABSENT_FOR_USE, _NONE)
HINTS = {
    "train": _by_word(_SAME_SPELLINGS, _HERE) | _by_word(_ABSENT_SPELLINGS, _NONE),
    "val": _USE
    | _by_word({"data=": "dataset data_path data_dir", "batch=": "batch_size bs"}, _HERE)
    | _by_word({"AP is measured over all scores": "conf conf_thres score_thr score"}, _NONE),
    "predict": _USE
    | _by_word(
        {
            "score=": "conf conf_thres score_thr confidence threshold thresh",
            "source=": "data image images img input file path folder video",
            "out=": "output output_dir save_dir project name",
            "text=": "prompt",
            "num=": "length max_tokens n count num_samples",
        },
        _HERE,
    )
    | _by_word({"images, labels and JSON are always written": "save save_txt save_conf save_json"}, _NONE)
    | _by_word({"the results name all classes": "classes"}, _NONE),
}
"""For a command, what to say about each word. Other commands use those of `train`."""


def with_hint(error: UnknownSettingError, keys: Iterable[str], *, command: str = "train") -> UsageError:
    """Return the error with what its setting, and other foreign words among `keys`, are called here."""
    table = HINTS.get(command, HINTS["train"])
    hint = table.get(error.key.lower()) or (_of_settings(error.key) if table is HINTS["train"] else "")
    if not hint:
        return error
    others = [key for key in keys if key != error.key and key.lower() in table]
    advice = "; ".join(f"{key}: {table[key.lower()]}" for key in others)
    return UsageError(f"{error.key}: no such setting; {hint}", advice=advice)


def _of_settings(key: str) -> str:
    """Return a hint at the choice that a setting or group needs, or at settings of that name elsewhere."""
    every = list_settings()
    inside = [setting for setting in every if setting.key == key or setting.key.startswith(f"{key}.")]
    if choices := dict.fromkeys(choice for setting in inside for choice in setting.choices):
        own = [choice for choice in choices if not choice.startswith(f"{key}=")]
        return f"only with {' or '.join(own)}"
    same = _same_name(key, list(dict.fromkeys(setting.key for setting in every)))
    return _HERE.format(" or ".join(f"{other}=" for other in same)) if same else ""


def _same_name(key: str, every: list[str]) -> list[str]:
    """Return the settings that a key may mean: those of its group whose names contain its own, such as
    saver.every_steps for saver.steps, or those of the same name elsewhere.
    """
    group, _, name = key.rpartition(".")
    if not group:
        return [other for other in every if other.rpartition(".")[2] == name]
    beside = [other for other in every if other.rpartition(".")[0] == group]
    near = [other for other in beside if name in other.rpartition(".")[2].split("_")]
    # A setting of the whole run, such as its length, is not what somebody meant who named a group.
    return near or [other for other in every if other.endswith(f".{name}")]


def dotted_keys(settings: Tree, prefix: str = "") -> Iterator[str]:
    """Yield the keys of all settings in a tree."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from dotted_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
