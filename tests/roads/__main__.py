"""Write the entries of record.json anew that are beyond their tolerance."""

from tests.roads.record import write

if __name__ == "__main__":
    for line in write():
        print(line)  # noqa: T201
