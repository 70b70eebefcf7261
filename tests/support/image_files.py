"""Images in tar files, as docker save writes them."""

import io
import json
import tarfile
from pathlib import Path


def layered(path: Path, layers: dict[str, str], images: int = 1) -> Path:
    """Write what docker saves of an image with these layers: the names of their files, and their diff IDs."""
    config = {"rootfs": {"diff_ids": list(layers.values())}}
    entry = {"Config": "c.json", "RepoTags": ["t:1"], "Layers": list(layers)}
    files = {**{name: f"data of {name}" for name in layers}, "c.json": config, "manifest.json": [entry] * images}
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = (content if isinstance(content, str) else json.dumps(content)).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path
