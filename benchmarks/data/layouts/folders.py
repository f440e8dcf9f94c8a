"""Folders of classes, and what every layout needs: the images of a folder, and a list of files checked against it."""

__all__ = ["ClassFolders", "images_in", "lines_of", "listed", "subfolders"]

ENDINGS = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp"}


def existing(folder):
    if not folder.is_dir():
        raise ValueError(
            f"Expected the folder {folder}, but it does not exist; check the path, or name only the splits you have."
        )
    return folder


def subfolders(folder):
    return sorted(path for path in existing(folder).iterdir() if path.is_dir() and not path.name.startswith("."))


def images_in(folder):
    """The image files of a folder and of those in it, sorted; none is an error."""
    files = sorted(path for path in existing(folder).rglob("*") if path.suffix.lower() in ENDINGS)
    if not files:
        raise ValueError(f"Expected images in the folder {folder}, but it holds none; delete it or fill it.")
    return files


def lines_of(labels):
    if not labels.is_file():
        raise ValueError(f"Expected the labels file {labels}, but it does not exist; without it images have no labels.")
    return labels.read_text().splitlines()


def listed(folder, pairs, labels):
    """The ``(path, class)`` pairs that a labels file gives for a folder, if it names the images there and no others."""
    present, named = set(images_in(folder)), {path for path, _ in pairs}
    if present != named:
        example = min(present ^ named)
        raise ValueError(
            f"Expected {labels} to name exactly the images in {folder}, but {len(named - present)} that it names are "
            f"not there and {len(present - named)} that are there it does not name ({example.name} for one); "
            f"unpack the archive again."
        )
    return pairs


class ClassFolders:
    """``<root>/<split>/<class>/*``, deeper folders included: MNIST, CIFAR-10, CIFAR-100, PACS.

    `folders` names where each split lies below the root, if that is not its own name: Office-31, Office-Home.
    """

    def __init__(self, folders=None, *, size=32):
        self.folders, self.size = folders, size

    def folder(self, root, split):
        if self.folders is None:
            return root / split
        if split not in self.folders:
            raise ValueError(f"Expected a split of {', '.join(self.folders)}, but got {split!r}.")
        return root / self.folders[split]

    def splits(self, root):
        return list(self.folders or (split.name for split in subfolders(root) if subfolders(split)))

    def classes(self, root, split):
        return [folder.name for folder in subfolders(self.folder(root, split))]

    def rows(self, root, split):
        for folder in subfolders(self.folder(root, split)):
            for file in images_in(folder):
                yield file, folder.name
