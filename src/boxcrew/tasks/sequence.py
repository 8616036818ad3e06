"""The sequence task: sequences that belong to classes are classified, running text is continued."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Losses
from boxcrew.data.examples.alphabet import decode_tokens, encode_text, num_tokens
from boxcrew.data.examples.example_set import InputKind
from boxcrew.data.loading.example_samples import Augmentation, eval_example_batches
from boxcrew.evaluate.advice import Advice, generalization_gap
from boxcrew.evaluate.classification import ClassificationEvaluation
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.evaluate.language import LanguageReport, evaluate_language
from boxcrew.nets.class_losses import cross_entropy
from boxcrew.nets.initialization import initialize
from boxcrew.nets.network import Network
from boxcrew.nets.recurrent import LanguageModel
from boxcrew.runtime.exported import Exported
from boxcrew.tasks.base import TASKS, Task
from boxcrew.tasks.classification import ClassTaskConfig, ClassTaskData, RegularizedTask
from boxcrew.tasks.data import EvalOptions, OpenOptions, ScoreTable, ToDevice
from boxcrew.tasks.exported import ExportedLanguageModel
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.net_configs import NetConfig, RnnConfig, net_chosen

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class SequenceConfig(ClassTaskConfig):
    default_data = "shop_talk"
    folder = "sequence"
    metrics: ClassVar[Mapping[str, bool]] = {
        "val_loss": False,
        **ClassTaskConfig.metrics,
        "perplexity": False,
        "bits": False,
    }
    kinds = frozenset[InputKind]({"images", "tokens"})

    name: Literal["sequence"] = "sequence"
    net: Annotated[SerializeAsAny[NetConfig], net_chosen("rnn")] = RnnConfig()


class LanguageNet(Network):
    """A language model of characters, with its alphabet."""

    def __init__(self, model: LanguageModel, encoding: Mapping[str, Any]) -> None:
        super().__init__(encoding=encoding)
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores before softmax (B, T, num_tokens) of the token after each of (B, T)."""
        scores: Tensor = self.model(tokens)
        return scores

    def token_tensors(self) -> tuple[str, ...]:
        scores = ("bias",) if self.model.is_tied else ("head.weight", "head.bias")
        return tuple(f"model.{name}" for name in ("embedding.weight", *scores))

    def continue_text(self, text: str, num: int, *, temperature: float, seed: int) -> str:
        """Return `num` characters that may follow a text."""
        prompt = torch.from_numpy(encode_text(self.encoding, text or "\n"))[None]
        prompt = prompt.to(self.model.device)
        generator = torch.Generator().manual_seed(seed)
        tokens = self.model.continue_text(prompt, num, temperature=temperature, generator=generator)
        return decode_tokens(self.encoding, tokens[0].cpu().numpy())


def language_net_of(task: Task) -> LanguageNet:
    """Return the language model of a task; `TypeError` if it has another network."""
    network = task.network
    if not isinstance(network, LanguageNet):
        raise TypeError(f"the network is a {type(network).__name__}, not a LanguageNet")
    return network


class LanguageTask(RegularizedTask):
    """A language model with the cross-entropy of each next character."""

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        """Predict for inputs (B, T + 1) each token from those before it. If augmentation hid some, the target
        `unchanged` has the original tokens, which are still predicted.
        """
        assert phase in self.phases
        scores = self.net(batch.inputs[:, :-1])
        true = batch.targets.get("unchanged", batch.inputs)
        total, weight = cross_entropy(scores, true[:, 1:], smoothing=self._config.smoothing)
        return Losses(terms={"character": total, **self._config.penalty(self.net, weight)}, weight=weight)


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageEvaluation(Evaluation):
    report: LanguageReport
    sample: str  # of generated text

    def sentence(self) -> str:
        numbers = self.numbers
        return (
            f"{numbers['val_loss']:.3f} nats a character  perplexity {numbers['perplexity']:.2f}  "
            f"{numbers['bits']:.3f} bits, {self.report.num_characters} characters"
        )

    def show(self, writer: SummaryWriter, step: int) -> None:
        writer.add_text("val/sample", f"```\n{self.sample}\n```", step)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "sample": self.sample}


SAMPLE = 200  # characters of generated text
TEXT_METRICS = ("val_loss", "perplexity", "bits")


@TASKS.register("sequence")
@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceData(ClassTaskData[SequenceConfig]):
    """Sequences with classes, or running text."""

    config_class = SequenceConfig

    @classmethod
    def open(cls, config: SequenceConfig, options: OpenOptions, facts: ExampleFacts | None = None) -> Self:
        opened = super().open(config, options, facts)
        for name in ("focal", "class_weights", "balanced", "check_labels") if opened.is_text else ():
            if getattr(config, name):
                raise UsageError(
                    f"task.{name}: this is running text, which has no classes",
                    advice="leave it out, or use one file of texts for each class",
                )
        return opened

    @property
    def is_text(self) -> bool:
        """True if this is running text without classes, which the network learns to continue."""
        return not self.examples.classes

    @property
    def num_examples(self) -> int:
        return self.num_train * self.examples.shape[0] // 2 if self.is_text else self.num_train

    @property
    def metrics(self) -> Mapping[str, bool]:
        if self.is_text:
            return {name: self.config.metrics[name] for name in TEXT_METRICS}
        of_text = set(TEXT_METRICS) - ClassTaskConfig.metrics.keys()
        return {name: higher for name, higher in super().metrics.items() if name not in of_text}

    def augmentation(self) -> Augmentation:
        return replace(super().augmentation(), keeps_inputs=self.is_text)

    @classmethod
    def build_exported(cls, config: SequenceConfig, facts: ExampleFacts, exported: Exported) -> Task:
        if facts.classes:
            return super().build_exported(config, facts, exported)
        return LanguageTask(LanguageNet(ExportedLanguageModel(exported), facts.encoding), config)

    @classmethod
    def build(cls, config: SequenceConfig, facts: ExampleFacts) -> Task:
        if facts.classes:
            return super().build(config, facts)
        net = config.net
        if not isinstance(net, RnnConfig):
            raise UsageError(f"net={net.name}: cannot continue running text", advice="use net=rnn")
        if net.bidirectional:
            raise UsageError(
                "net.bidirectional=true: a network that continues text must not read it from its end",
                advice="net.bidirectional=false",
            )
        num, cells = num_tokens(facts.encoding), net.recurrent_layers()
        model = LanguageModel(num, cells, embedding=net.embedding, tied=net.tied)
        initialize(model, net.initializer)
        return LanguageTask(LanguageNet(model, facts.encoding), config)

    def evaluate(self, task: Task, move: ToDevice, options: EvalOptions) -> Evaluation:
        if not self.is_text:
            return super().evaluate(task, move, options)
        net = language_net_of(task)
        start, network_seconds, nats, count, done = time.monotonic(), 0.0, 0.0, 0, 0
        for batch in eval_example_batches(self.val, batch=options.batch, workers=options.workers):
            started = time.perf_counter()
            with torch.inference_mode():
                inputs = move(batch.inputs)
                total, weight = cross_entropy(net(inputs[:, :-1]), inputs[:, 1:])
            network_seconds += time.perf_counter() - started
            nats, count, done = nats + float(total), count + int(weight), done + len(inputs)
            if options.progress:
                options.progress(done)
        return LanguageEvaluation(
            report=evaluate_language(nats, count),
            sample=net.continue_text("", SAMPLE, temperature=0.8, seed=0),
            milliseconds={"network": 1000 * network_seconds / max(1, done)},
            seconds=time.monotonic() - start,
            skipped=(),
        )

    def advice_after(
        self, task: Task, move: ToDevice, options: EvalOptions, last: Evaluation
    ) -> tuple[Advice, ...]:
        if isinstance(last, ClassificationEvaluation):
            return super().advice_after(task, move, options, last)
        some = replace(self, val=self.train.subset(len(self.val)))
        trained = some.evaluate(task, move, options).numbers
        return generalization_gap(train_loss=trained["val_loss"], val_loss=last.numbers["val_loss"])

    @classmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        if report["classes"]:
            return super().scores(report)
        numbers = report["numbers"]
        values = (f"{numbers[name]:.3f}" for name in TEXT_METRICS)
        return ScoreTable(columns=("text", *TEXT_METRICS), rows=(("all", *values),))
