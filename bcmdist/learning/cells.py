"""The tree of spatial cells of a fit, and the sizes of cells and halos."""

from bcmdist.committee.facts import Cells
from bcmdist.data.cell_tree import CellTree, grow
from bcmdist.model.kernels import metric
from bcmdist.prediction.local.halos import sizes_for

# Maximum rows sampled to build the tree of cells, and minimum sampled rows per cell.
TREE_SAMPLE, LEAST_SAMPLED = 200_000, 8


def grow_cells(sample, kernel, rows, settings) -> tuple[CellTree, Cells]:
    """Build the tree of cells for all rows from a sample of scaled inputs (n, D), and the cell sizes."""
    sizes = sizes_for(rows, sample.shape[1], settings.effort)
    share = min(1.0, len(sample) / rows)
    tree = grow(
        sample,
        metric(kernel, sample.shape[1]),
        cell_rows=max(LEAST_SAMPLED, share * sizes.core),
        partition_rows=max(LEAST_SAMPLED, share * settings.rows_per_expert),
        seed=settings.seed,
    )
    return tree, Cells(sizes.core, sizes.with_halo)
