import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pliska.coordinator.registry import (
    NotFoundError,
    Reference,
    RegistryUsageError,
    Tensor,
    TensorFormatError,
)
from pliska.coordinator.registry.pt2_file import Pt2File

CONFIG = "data/weights/model_weights_config.json"
SAMPLES = "data/sample_inputs/model.pt"
X = torch.tensor([[1.0, 2.0, 3.0]])


class Tiny(torch.nn.Module):
    """A layer, a transposed parameter, a bfloat16 buffer, a scalar, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.turned = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
        self.register_buffer("halves", torch.tensor([1.5, -2.0]).to(torch.bfloat16))
        self.register_buffer("scale", torch.tensor(2.0))
        self.constant = torch.tensor([7.0, 8.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale + x @ self.turned + self.halves.float() + self.constant


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tiny]:
    torch.manual_seed(1)
    model = Tiny().eval()
    path = tmp_path_factory.mktemp("pt2") / "m.pt2"
    with warnings.catch_warnings():  # it warns of the transposed parameter
        warnings.simplefilter("ignore", UserWarning)
        torch.export.save(torch.export.export(model, (X,)), path)
    return path, model


def bytes_of(tensors: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: b"".join(each.chunks()) for name, each in tensors.items()}


def raw(tensor: torch.Tensor) -> bytes:
    content: bytes = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return content


def test_the_weights_are_parameters_and_buffers_in_c_order(exported: tuple[Path, Tiny]) -> None:
    path, model = exported
    with Pt2File(path) as archive:
        assert bytes_of(archive.tensors) == {n: raw(t) for n, t in model.state_dict().items()}
        assert (archive.tensors["halves"].type.dtype, archive.tensors["scale"].type.shape) == (
            "BF16",
            (),
        )


def test_a_version_is_exported_with_the_graph_of_an_archive_and_without_any_pickle(
    desk: Any, exported: tuple[Path, Tiny], tmp_path: Path
) -> None:
    path, model = exported
    desk.registry.register_file("digits", path, actor="ann")
    weights = {n: torch.randn(t.shape).to(t.dtype) for n, t in model.state_dict().items()}
    tensors = {
        name: Tensor.of_bytes("BF16" if name == "halves" else "F32", tuple(each.shape), raw(each))
        for name, each in weights.items()
    }
    desk.registry.register("digits", tensors, actor="ann")
    for version, expected in ((1, model.state_dict()), (2, weights)):
        out = tmp_path / f"{version}.pt2"
        desk.registry.export(Reference("digits", version=version), out, path)
        program = torch.export.load(out)
        same = Tiny()
        same.load_state_dict(expected)
        assert torch.equal(program.module()(X), same(X))
        with zipfile.ZipFile(out) as archive:
            assert archive.testzip() is None
            contents = {name: archive.read(name) for name in archive.namelist()}
        assert contents[f"m/{SAMPLES}"] == b""
        assert not any(content.startswith((b"\x80", b"PK")) for content in contents.values())
        assert not desk.registry.register_file("digits", out, actor="ann").created


def rewritten(path: Path, out: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Write an archive anew after a change of its entries."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out


def weight(name: str, **fields: Any) -> Callable[[dict[str, bytes]], None]:
    """Return a change of what the archive says of one weight."""

    def change(entries: dict[str, bytes]) -> None:
        config = json.loads(entries[f"m/{CONFIG}"])
        entry = config["config"][name]
        for field, value in fields.items():
            place = entry if field in entry else entry["tensor_meta"]
            place[field] = value
        entries[f"m/{CONFIG}"] = json.dumps(config).encode()

    return change


def entry(name: str, content: bytes | None) -> Callable[[dict[str, bytes]], None]:
    def change(entries: dict[str, bytes]) -> None:
        entries.pop(f"m/{name}", None)
        if content is not None:
            entries[f"m/{name}"] = content

    return change


HUGE = [{"as_int": 2**40}]


@pytest.mark.parametrize(
    "change",
    [
        weight("scale", use_pickle=True),
        weight("scale", use_pickle=1),
        weight("scale", path_name="../../../etc/passwd"),
        weight("scale", path_name="weight_99"),
        weight("scale", dtype=9),
        weight("scale", layout=1),
        weight("scale", storage_offset={"as_int": 1}),
        weight("scale", storage_offset={"as_int": -1}),
        weight("scale", storage_offset={"as_expr": "s0"}),
        weight("halves", sizes=[{"as_int": 3}]),
        weight("halves", sizes=HUGE, strides=[{"as_int": 0}]),
        weight("halves", sizes=[{"as_int": -1}]),
        weight("halves", sizes=[{"as_expr": "s0"}]),
        weight("halves", strides=[]),
        weight("halves", strides=[{"as_int": 2**40}]),
        entry(CONFIG, None),
        entry(CONFIG, b"\x80\x04."),
        entry(CONFIG, b"[]"),
        entry(CONFIG, b'{"config": {}}'),
        entry(CONFIG, b"[" * 100_000),
        entry(f"x/{CONFIG}", b"{}"),
    ],
)
def test_an_archive_whose_weights_are_not_raw_dense_bytes_is_refused(
    exported: tuple[Path, Tiny], tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    with pytest.raises(TensorFormatError):
        Pt2File(rewritten(exported[0], tmp_path / "bad.pt2", change))


def test_a_pickle_among_the_sample_inputs_is_never_read(
    desk: Any, exported: tuple[Path, Tiny], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    bomb = b"cos\nsystem\n(S'touch " + str(ran).encode() + b"'\ntR."
    path = rewritten(exported[0], tmp_path / "bomb.pt2", entry(SAMPLES, bomb))
    desk.registry.register_file("digits", path, actor="ann")
    desk.registry.export(Reference("digits"), tmp_path / "out.pt2", path)
    assert not ran.exists()
    with zipfile.ZipFile(tmp_path / "out.pt2") as archive:
        assert archive.read(f"m/{SAMPLES}") == b""


@pytest.mark.parametrize("content", [b"", b"\x80\x04.", b"PK\x03\x04" + b"\0" * 40])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.pt2").write_bytes(content)
    with pytest.raises(TensorFormatError):
        Pt2File(tmp_path / "m.pt2")
    with pytest.raises(NotFoundError):
        Pt2File(tmp_path / "missing.pt2")


def test_a_compressed_archive_is_refused_before_anything_is_unpacked(
    exported: tuple[Path, Tiny], tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "z.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"m/{CONFIG}", b" " * 10_000_000)
    with pytest.raises(TensorFormatError, match="compressed"):
        Pt2File(tmp_path / "z.pt2")


def test_weights_that_the_archive_has_no_place_for_are_refused(
    exported: tuple[Path, Tiny], tmp_path: Path
) -> None:
    with Pt2File(exported[0]) as archive:
        for name, kind, shape in (
            ("other", "F32", ()),
            ("scale", "F32", (1,)),
            ("scale", "I32", ()),
        ):
            tensor = Tensor.of_bytes(kind, shape, b"\0" * 4)
            with pytest.raises(RegistryUsageError, match="has no weight"):
                archive.write_like(tmp_path / "out.pt2", {name: tensor})
    assert list(tmp_path.iterdir()) == []
