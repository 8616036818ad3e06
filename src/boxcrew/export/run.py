"""The export of a trained network: built, tried, proved on real samples, measured, and only then written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from boxcrew.core.config import Tree
from boxcrew.core.errors import BoxcrewError, DataError, ExportError
from boxcrew.core.files import write_json
from boxcrew.core.units import format_bytes
from boxcrew.data.checks.threads import ProgressCallback
from boxcrew.evaluate.evaluation import Evaluation, is_measured
from boxcrew.export.costs import Cost, measure
from boxcrew.export.describe import describe, main_scores
from boxcrew.export.formats import FORMATS, ExportFormat
from boxcrew.export.formats.onnx import onnx_model
from boxcrew.export.graphs import BATCH, ExportGraph, graph_of
from boxcrew.export.int8 import calibration_inputs, quantized
from boxcrew.export.proof import Proof, evaluate_torch, prove, require_any_length, training_inputs
from boxcrew.export.settings import ExportConfig
from boxcrew.export.triton import triton_folder, write_triton
from boxcrew.nets.network import Network
from boxcrew.runtime.exported import Exported, ExportedPredictor
from boxcrew.runtime.model_file import (
    MODEL,
    ONNX,
    ModelFile,
    is_model_file,
    read_model,
    with_description,
    write_model,
)
from boxcrew.runtime.model_info import ModelInfo
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import TaskData
from boxcrew.tasks.detection import DetectionConfig, DetectionData
from boxcrew.tasks.example_data import ExampleData
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import is_run
from boxcrew.train.run.loading import Loaded, load_task
from boxcrew.train.run.validate import ValConfig, open_eval_data


def export(config: ExportConfig, screen: Screen) -> Tree:
    """Export a trained network and return the report about it. Nothing but the report is written if the file
    does not compute what the network does.
    """
    job = _prepare(config, screen)
    screen.info(f"export: {job.loaded.path} as {config.format}")
    with screen.progress("writing the network"):
        model = onnx_model(job.graph)
        info = job.describe()
        draft = job.draft(model, info)
    if not config.proof:
        job.require_any_length(draft)
        screen.warn("proof=false: this file was not compared with the network")
        return job.write(draft, {})
    data = _open_data(config, job.loaded, screen)
    with screen.progress("evaluating the network") as progress:
        done = partial(_show, progress, _num_samples(data))
        evaluation = evaluate_torch(job.loaded, data, done)
    plain = None
    if config.int8 and isinstance(data, DetectionData):  # `_load` refuses int8 of any other
        plain = draft.with_scores(main_scores(job.prove(draft, data, evaluation).scores))
        draft = job.with_int8(model, info, data)
    job.require_any_length(draft)
    proof = job.prove(draft, data, evaluation)
    found = job.judge(proof, evaluation)
    return job.write(draft.with_scores(main_scores(proof.scores)), found, plain=plain)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Draft:
    """A network as it would be written, and opened."""

    files: Mapping[str, bytes]
    exported: Exported

    @property
    def info(self) -> ModelInfo:
        return self.exported.info

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.files.values()))

    def with_scores(self, scores: Mapping[str, float]) -> _Draft:
        """Return the same with what was measured in its description."""
        info = self.info.model_copy(update={"scores": scores})
        return replace(self, exported=replace(self.exported, file=replace(self.exported.file, info=info)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Job:
    """One export of a trained network."""

    config: ExportConfig
    format: ExportFormat
    out: Path
    loaded: Loaded
    graph: ExportGraph
    screen: Screen

    def describe(self) -> ModelInfo:
        return describe(
            self.loaded, inputs=self.graph.inputs, with_nms=self.config.nms, chooses=self.format.chooses
        )

    def draft(self, model: bytes, info: ModelInfo) -> _Draft:
        """Convert an ONNX model to the format, and open the result."""
        files = self.format.convert(self.graph, model)
        described = {
            name: with_description(files[name], info) if name == MODEL else files[name] for name in files
        }
        file = ModelFile(path=self.out, info=info, files=described)
        exported = Exported(
            file=file, engine=self.format.open(file, 1), engine_name=self.format.engine, threads=1
        )
        return _Draft(files=files, exported=exported)

    def require_any_length(self, draft: _Draft) -> None:
        require_any_length(self.graph, draft.exported)
        if self.format.takes_batches:
            self.screen.info("the file takes any number of samples at once")

    def prove(self, draft: _Draft, data: TaskData, evaluation: Evaluation) -> Proof:
        name = f"comparing the {draft.info.precision} file with the network"
        with self.screen.progress(name) as progress:
            done = partial(_show, progress, _num_samples(data))
            return prove(draft.exported, self.loaded, data, evaluation, done)

    def with_int8(self, model: bytes, info: ModelInfo, data: DetectionData) -> _Draft:
        """Return the network with integers of 8 bits, calibrated with training photos."""
        predictor = ExportedPredictor.of(self.draft(model, info).exported)
        with self.screen.progress("calibrating int8"):
            images = list(training_inputs(predictor, data, most=self.config.photos))
            threshold = self.loaded.config.detector.score_threshold
            small = quantized(model, list(calibration_inputs(images, score_threshold=threshold)))
        self.screen.info(f"int8: calibrated with {len(images)} training photos")
        return self.draft(small, info.model_copy(update={"precision": "int8"}))

    def judge(self, proof: Proof, evaluation: Evaluation) -> Tree:
        """Return what was found as a part of the report; `ExportError` if the file must not be written."""
        found: Tree = {
            "torch": main_scores(evaluation.numbers),
            "exported": main_scores(proof.scores),
            "proof": {**proof.parity.tree(), "noun": proof.noun},
        }
        conclusion, problem = self._conclusion(proof, evaluation)
        self.screen.info(conclusion)
        if problem is not None:
            self._write_report({**found, "written": False, "problem": problem.message})
            raise problem
        return found

    def _conclusion(self, proof: Proof, evaluation: Evaluation) -> tuple[str, ExportError | None]:
        """Return the result in a sentence, and why the file must not be written, or None."""
        if not self.config.int8:
            sentence = proof.sentence()
            if proof.parity.holds:
                return f"proof: {sentence}", None
            problem = (
                f"format={self.config.format}: the file gives other results: {sentence}; "
                f"the first: {proof.parity.differing[0]}"
            )
            advice = f"only {_report_file(self.out)} was written, which lists them"
            return f"proof: {sentence}", ExportError(problem, advice=advice)
        before, after = evaluation.numbers["AP"], proof.scores.get("AP", -1.0)
        if not (is_measured(before) and is_measured(after)):
            problem = "int8=true: these photos have no boxes to measure AP by"
            return problem, ExportError(problem, advice="give data=… and split=… with labels")
        sentence = f"int8: AP {after:.4f}, with torch {before:.4f} ({after - before:+.4f})"
        if before - after <= self.config.max_loss or self.config.force:
            return sentence, None
        problem = f"int8=true: AP falls by {before - after:.4f}, more than max_loss={self.config.max_loss:g}"
        advice = "more training photos (photos=300), a larger max_loss=, or force=true"
        return sentence, ExportError(problem, advice=advice)

    def write(self, draft: _Draft, found: Tree, *, plain: _Draft | None = None) -> Tree:
        """Measure and write the network; return the report. `plain` is the same in floats, for comparison."""
        drafts = {draft.exported.engine_name: draft}
        if plain is not None:
            drafts[f"{plain.exported.engine_name} {plain.info.precision}"] = plain
            found = {**found, "plain": plain.info.scores}
        costs = self._costs({name: each.exported for name, each in drafts.items()})
        num_bytes = {
            **{name: each.num_bytes for name, each in drafts.items()},
            "torch": _num_bytes(self.loaded.task.network),
        }
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_model(self.out, draft.files, draft.info)
        report = self._write_report(
            {
                **found,
                "costs": {name: cost.tree() for name, cost in costs.items()},
                "bytes": num_bytes,
                "precision": draft.info.precision,
                "description": draft.info.tree(),
                "written": True,
            }
        )
        aps = {name: each.info.scores["AP"] for name, each in drafts.items() if "AP" in each.info.scores}
        self._print(costs, num_bytes, {"torch": found["torch"]["AP"], **aps} if aps else {})
        if self.config.triton:
            folder = write_triton(triton_folder(self.out), self.graph, self.out)
            self.screen.info(f"triton: {folder}")
        return report

    def _write_report(self, values: Tree) -> Tree:
        report = {"file": str(self.out), "format": self.config.format, **values}
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(_report_file(self.out), report)
        return report

    def _costs(self, files: Mapping[str, Exported]) -> dict[str, Cost]:
        """Measure the time of one sample, with the network in torch and with each of the files."""
        inputs = [
            _first(*pair) for pair in zip(self.graph.traced_inputs(), self.graph.axes.values(), strict=True)
        ]
        arrays = {
            name: np.ascontiguousarray(values.numpy())
            for name, values in zip(self.graph.inputs, inputs, strict=True)
        }

        @torch.inference_mode()
        def in_torch() -> object:
            return self.graph.module(*map(self.loaded.deployment.to_device, inputs))

        with self.screen.progress("measuring them"):
            computed = {name: partial(exported.engine.run, arrays) for name, exported in files.items()}
            return measure({"torch": in_torch, **computed})

    def _print(
        self, costs: Mapping[str, Cost], num_bytes: Mapping[str, int], aps: Mapping[str, float]
    ) -> None:
        rows = [
            (
                name,
                f"{cost.ms:.1f}",
                f"{cost.cpu_ms:.1f}",
                f"{costs['torch'].cpu_ms / cost.cpu_ms:.1f} x",
                format_bytes(num_bytes[name]),
                *([f"{aps[name]:.4f}"] if name in aps else []),
            )
            for name, cost in costs.items()
        ]
        columns = ("computed by", "ms", "CPU ms", "against torch", "size", *(["AP"] if aps else []))
        self.screen.table("one sample on one thread", columns, rows)
        self.screen.info(f"exported: {self.out}")


def _first(values: torch.Tensor, axes: Mapping[int, str]) -> torch.Tensor:
    """Return an input for one sample."""
    for axis, name in axes.items():
        if name == BATCH:
            return values.narrow(axis, 0, 1)
    return values


def _prepare(config: ExportConfig, screen: Screen) -> _Job:
    """Check what can be checked before anything is computed."""
    kind = FORMATS.get(config.format)
    out = _new_file(config)
    loaded = _load(config)
    if config.int8 and not kind.takes_int8:
        raise ExportError(f"int8=true: not possible with format={config.format}", advice="format=onnx")
    if config.triton and config.format != "onnx":
        raise ExportError(f"triton=true: not possible with format={config.format}", advice="format=onnx")
    if config.triton and (folder := triton_folder(out)).exists():
        raise ExportError(f"{folder}: exists already", advice="remove it, or give another out=")
    kind.require()
    graph = graph_of(loaded, with_nms=config.nms)
    return _Job(config=config, format=kind, out=out, loaded=loaded, graph=graph, screen=screen)


def _new_file(config: ExportConfig) -> Path:
    """Return the file or folder to write; `ExportError` if it exists."""
    is_onnx = config.format == "onnx"
    out = config.out
    if out is None:
        folder = config.run if config.run.is_dir() else config.run.parent
        name = "-".join(["model", *(["nms"] if config.nms else []), *(["int8"] if config.int8 else [])])
        name += "" if config.size is None else f"-{config.size}"
        out = folder / "export" / (f"{name}{ONNX}" if is_onnx else f"{name}_{config.format}")
    if (out.suffix.lower() == ONNX) is not is_onnx:
        problem = "the name of the file has to end in .onnx" if is_onnx else "is a folder here, not a file"
        raise ExportError(f"out={out}: {problem}")
    if out.exists():
        raise ExportError(f"{out}: exists already", advice="remove it, or give another out=")
    return out


def _load(config: ExportConfig) -> Loaded:
    if is_model_file(config.run):
        info = read_model(config.run).info
        advice = "give the run that it was made of"
        raise ExportError(f"run={config.run}: already an exported {info.network}", advice=advice)
    loaded = load_task(config.run, which=config.weights, device="cpu")
    if not isinstance(loaded.config, DetectionConfig):
        for name, is_set in (("int8=true", config.int8), (f"size={config.size}", config.size is not None)):
            if is_set:
                raise ExportError(f"{name}: {loaded.path} is not a detector", advice="leave it out")
    return loaded if config.size is None else _resized(loaded, config)


def _resized(loaded: Loaded, config: ExportConfig) -> Loaded:
    """Return the same weights in a network for another size of the input."""
    detector = loaded.config.detector
    changed = type(detector).of({**detector.tree(), "size": str(config.size)})
    task_config = loaded.config.model_copy(update={"detector": changed})
    task = TASKS.get(task_config.name).build(task_config, loaded.facts).eval()
    try:
        task.network.load_state_dict(loaded.task.network.state_dict())
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ExportError(f"size={config.size}: the weights fit one size only: {reason}") from None
    return replace(loaded, task=task, config=task_config)


def _open_data(config: ExportConfig, loaded: Loaded, screen: Screen) -> TaskData:
    if config.data is None and not is_run(config.run) and not (config.run / "config.yaml").is_file():
        raise DataError(
            f"run={config.run}: a weight file has no data to prove the export on",
            advice="give data=… with photos and labels, or proof=false",
        )
    try:
        return open_eval_data(ValConfig.of(config.val_settings()), loaded, screen)
    except BoxcrewError as error:
        error.advice = error.advice or "give data=… to prove the export on, or proof=false"
        raise


def _show(progress: ProgressCallback, num_samples: int, num_done: int) -> None:
    progress(num_done, num_samples)


def _num_samples(data: TaskData) -> int:
    return len(data.val) if isinstance(data, DetectionData | ExampleData) else 0


def _num_bytes(network: Network) -> int:
    return sum(tensor.nbytes for tensor in network.state_dict().values())


def _report_file(out: Path) -> Path:
    return out.with_suffix(".report.json")
