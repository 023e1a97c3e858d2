//! Views: whose memory they share, and where in it they lie.

use wgfuse::graph::{BufferClass, DType, Graph, GraphError, Layout, LeafKind, OpKind, TensorId, ViewOf};

fn leaf(graph: &mut Graph, ne: [usize; 4]) -> TensorId {
    graph.leaf("x", LeafKind::Cache, DType::F32, ne).expect("a leaf")
}

fn row(n: usize) -> ([usize; 4], [usize; 4]) {
    ([n, 1, 1, 1], [4, 4 * n, 4 * n, 4 * n])
}

#[test]
fn offsets_add_up_on_the_root() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let x = leaf(&mut graph, [64, 1, 1, 1]);
    let (ne, nb) = row(48);
    let first = graph.view(x, ne, nb, 16)?;
    let shaped = graph.reshape(first, [8, 6, 1, 1])?;
    let turned = graph.transpose(shaped)?;
    let moved = graph.permute(turned, [0, 2, 1, 3])?;
    let (ne, nb) = row(4);
    let second = graph.view(moved, ne, nb, 32)?;
    let scaled = graph.scale_in_place(second, 2.0, 0.0)?;
    let value = leaf(&mut graph, [4, 1, 1, 1]);
    let copied = graph.cpy(value, scaled)?;
    let ids = graph.leaf("ids", LeafKind::Input, DType::I32, [1; 4])?;
    let row = graph.set_rows(value, ids, copied)?;
    for (id, offset) in
        [(first, 16), (shaped, 16), (turned, 16), (moved, 16), (second, 48), (scaled, 48), (copied, 48), (row, 48)]
    {
        assert_eq!(graph.tensor(id).view(), Some(ViewOf { root: x, offset }), "{:?}", graph.tensor(id).kind());
        assert_eq!((graph.root(id), graph.class(id)), (x, BufferClass::Cache));
    }
    Ok(())
}

#[test]
fn a_view_of_a_view_may_reach_as_far_as_the_root() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let x = leaf(&mut graph, [64, 1, 1, 1]);
    let (ne, nb) = row(4);
    let narrow = graph.view(x, ne, nb, 128)?;
    // Only the memory's owner bounds it, as in ggml: 128 bytes are left.
    let (ne, nb) = row(32);
    let wide = graph.view(narrow, ne, nb, 0)?;
    assert_eq!(graph.tensor(wide).view(), Some(ViewOf { root: x, offset: 128 }));
    let error = graph.view(narrow, ne, nb, 4).expect_err("one element too far");
    assert_eq!(error, GraphError::OutOfBounds { op: OpKind::View, end: 260, available: 256 });
    let error = graph.view(narrow, [1; 4], [4; 4], usize::MAX - 127).expect_err("past every address");
    assert!(matches!(error, GraphError::OutOfBounds { end: usize::MAX, available: 256, .. }), "{error}");
    Ok(())
}

#[test]
fn classes_follow_the_root() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    for (kind, class) in [
        (LeafKind::Weight, BufferClass::Weight),
        (LeafKind::Cache, BufferClass::Cache),
        (LeafKind::Input, BufferClass::Computed),
    ] {
        let x = graph.leaf("x", kind, DType::F32, [4, 1, 1, 1])?;
        let view = graph.reshape(x, [2, 2, 1, 1])?;
        let result = graph.sqr(view)?;
        assert_eq!([x, view].map(|id| graph.class(id)), [class; 2]);
        assert_eq!((graph.class(result), graph.root(result)), (BufferClass::Computed, result));
    }
    Ok(())
}

#[test]
fn extents_end_with_the_last_element() {
    let layout = |ne, nb| Layout { dtype: DType::F16, ne, nb };
    for (layout, extent) in [
        (layout([8, 3, 1, 1], [2, 16, 48, 48]), Some(48)),
        (layout([8, 3, 1, 1], [2, 100, 0, 0]), Some(216)),
        (layout([3, 8, 1, 1], [16, 2, 48, 48]), Some(48)),
        (layout([8, 3, 2, 2], [0, 0, 0, 0]), Some(2)),
        (layout([8, 0, 3, 1], [2, usize::MAX, usize::MAX, 0]), Some(0)),
        (layout([1, 1, 1, 1], [usize::MAX; 4]), Some(2)),
        (layout([2, 1, 1, 1], [usize::MAX - 1, 0, 0, 0]), None),
        (layout([2, 2, 1, 1], [1 << 63, 1 << 63, 0, 0]), None),
        (layout([1, 3, 1, 1], [2, 1 << 63, 0, 0]), None),
    ] {
        assert_eq!(layout.checked_extent(), extent, "{layout}");
        assert_eq!(layout.extent(), extent.unwrap_or(usize::MAX), "{layout}");
    }
}

#[test]
fn contiguity_ignores_strides_that_nothing_is_reached_by() {
    let layout = |ne, nb| Layout { dtype: DType::F32, ne, nb };
    for (layout, contiguous, rows) in [
        (layout([8, 3, 1, 1], [4, 32, 96, 96]), true, true),
        (layout([8, 1, 3, 1], [4, 999, 32, 0]), true, true),
        (layout([1, 3, 1, 1], [999, 4, 12, 12]), true, true),
        (layout([8, 3, 1, 1], [4, 36, 108, 108]), false, true),
        (layout([8, 3, 1, 1], [8, 64, 192, 192]), false, false),
        (layout([8, 0, 1, 1], [8, 5, 5, 5]), true, false),
    ] {
        assert_eq!((layout.is_contiguous(), layout.has_contiguous_rows()), (contiguous, rows), "{layout:?}");
        let shown = layout.to_string();
        assert_eq!(shown.contains("strides"), !contiguous, "{shown}");
    }
}

#[test]
fn whole_repetitions_fill() {
    let dense = |ne| Layout::contiguous(DType::F32, ne).expect("a layout");
    for (small, large, fills) in [
        ([2, 3, 1, 1], [4, 3, 5, 6], true),
        ([4, 3, 1, 1], [4, 2, 1, 1], false),
        ([0, 1, 1, 1], [4, 1, 1, 1], false),
        ([4, 3, 1, 1], [4, 0, 1, 1], true),
        ([3, 1, 1, 1], [0, 1, 1, 1], true),
    ] {
        assert_eq!(dense(small).repeats_into(&dense(large)), fills, "{small:?} in {large:?}");
    }
}

#[test]
fn elements_overlap_or_do_not() {
    let layout = |ne, nb| Layout { dtype: DType::F32, ne, nb };
    for (layout, distinct) in [
        (layout([8, 2, 1, 1], [4, 32, 64, 64]), true),
        // In any order of the dimensions, with gaps, and whatever strides are never taken.
        (layout([2, 8, 1, 1], [32, 4, 64, 64]), true),
        (layout([8, 2, 1, 1], [8, 4, 64, 64]), true),
        (layout([8, 2, 1, 3], [4, 128, 0, 32]), true),
        (layout([8, 1, 1, 1], [4, 0, 1, 2]), true),
        (layout([8, 0, 1, 1], [0, 0, 0, 0]), true),
        (layout([1, 1, 1, 1], [0, 0, 0, 0]), true),
        // The same row twice, rows that start inside the one before, elements inside others.
        (layout([8, 2, 1, 1], [4, 0, 64, 64]), false),
        (layout([8, 2, 1, 1], [4, 16, 64, 64]), false),
        (layout([8, 2, 1, 1], [2, 32, 64, 64]), false),
        (layout([2, 2, 2, 1], [4, 32, 32, 64]), false),
    ] {
        assert_eq!(layout.has_distinct_elements(), distinct, "{layout:?}");
    }
}
