"""Run by the interpreter of Lightning: RECIPE, the recipe's network, loss, optimizer and batches in its
Trainer, as it comes but for what it would write.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]


def main(recipe: str) -> None:
    lightning = importlib.import_module("lightning")
    torch = importlib.import_module("torch")
    loops = importlib.import_module("bench.loops")
    track = importlib.import_module("boxcrew.core.torch_tools.tracked_weights")
    torch.set_num_threads(2)
    turns = loops.Turns.of(recipe)
    task, batches, optimizer, clip = loops.components(recipe)

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.task = task
            self.automatic_optimization = len(task.phases) == 1

        def training_step(self, batch: Any, index: int) -> Any:  # noqa: ARG002
            if self.automatic_optimization:
                return self._loss(batch, "train")
            for phase in task.phases:  # as its documentation has it for several optimizers
                for name, parameter in task.named_parameters():
                    parameter.requires_grad = task.learns_in(phase, name)
                self.optimizers().zero_grad()
                self.manual_backward(self._loss(batch, phase))
                self.optimizers().step()
            return None

        def _loss(self, batch: Any, phase: str) -> Any:
            if len(task.phases) > 1:
                track.track_weights(self.task)
            losses = self.task(batch, phase)
            loss = losses.total() / losses.weight
            self.log(phase, loss, batch_size=len(batch))
            return loss

        def configure_optimizers(self) -> Any:
            return optimizer

        def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:  # noqa: ARG002
            return batch  # it is there already

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            return turns.between(batches)

    loader = torch.utils.data.DataLoader(Stream(), batch_size=None)
    trainer = lightning.Trainer(
        max_steps=loops.num_steps(recipe) * len(task.phases),
        accelerator="cpu",
        gradient_clip_val=clip if len(task.phases) == 1 else None,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), loader)
    turns.pairs.print()


if __name__ == "__main__":
    main(sys.argv[1])
