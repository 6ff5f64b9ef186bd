"""The process that Spark forks its Python workers from, with the kernels loaded beforehand.

Set as `spark.python.daemon.module` by `palio.spark.session`. Loading compiled code takes a second
or two, and every worker forked afterwards has it for nothing and shares its memory. Code that was
never compiled on this machine is left alone: that takes a minute, during which Spark would wait
for its first worker, and small jobs do not need it.
"""

from __future__ import annotations


def prepare() -> bool:
    """Load the kernels if they are compiled and on disk; whether they are loaded."""
    from palio.matching import warming
    from palio.matching.kernels import registry

    if not registry.are_on_disk():
        return False
    warming.warm()
    return True


if __name__ == "__main__":
    from pyspark.daemon import manager

    prepare()
    manager()
