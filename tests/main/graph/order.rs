//! The order in which a graph runs, what it uses, and ids that are not its own.

use wgfuse::graph::{DType, Graph, GraphError, LeafKind, OpKind, Tensor, TensorId};

const NE: [usize; 4] = [4, 1, 1, 1];

fn input(graph: &mut Graph, name: &str) -> TensorId {
    graph.leaf(name, LeafKind::Input, DType::F32, NE).expect("a leaf")
}

#[test]
fn depth_first_sources_in_order_each_once() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| input(&mut graph, name));
    let never = graph.sqr(a)?;
    let right = graph.sin(c)?;
    let shared = graph.add(b, a)?;
    let left = graph.sqr(shared)?;
    let sum = graph.add(left, right)?;
    let last = graph.mul(sum, shared)?;
    graph.expand(last)?;
    assert_eq!(graph.nodes(), [shared, left, right, sum, last]);
    assert_eq!(graph.leaves(), [b, a, c], "in the order of first use");
    assert_eq!(graph.uses(never), 0);

    // Whatever is there stays; what is new comes after it.
    let before = graph.clone();
    [last, sum, shared, a].into_iter().try_for_each(|id| graph.expand(id))?;
    assert_eq!(graph, before);
    let later = graph.sub(never, last)?;
    graph.expand(later)?;
    assert_eq!(graph.nodes(), [shared, left, right, sum, last, never, later]);
    assert_eq!(graph.leaves(), [b, a, c]);
    Ok(())
}

#[test]
fn a_later_source_waits_for_an_earlier_ones_sources() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let a = input(&mut graph, "a");
    let deep = graph.sqr(a)?;
    let deeper = graph.sqr(deep)?;
    // `deep` is the second source here, and a source of the first one's source.
    let both = graph.add(deeper, deep)?;
    let swapped = graph.add(deep, deeper)?;
    let last = graph.add(swapped, both)?;
    graph.expand(last)?;
    assert_eq!(graph.nodes(), [deep, deeper, swapped, both, last]);
    Ok(())
}

#[test]
fn a_deep_graph_does_not_overflow_the_stack() -> Result<(), GraphError> {
    const DEPTH: usize = 200_000;
    let mut graph = Graph::new();
    let mut x = input(&mut graph, "x");
    for _ in 0..DEPTH {
        x = graph.sqr(x)?;
    }
    graph.expand(x)?;
    assert_eq!((graph.nodes().len(), graph.leaves().len()), (DEPTH, 1));
    assert!(graph.nodes().is_sorted() && graph.nodes().last() == Some(&x));
    Ok(())
}

#[test]
fn uses_count_slots_and_views() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let [x, w] = ["x", "w"].map(|name| input(&mut graph, name));
    let square = graph.mul(x, x)?;
    let view = graph.reshape(square, [2, 2, 1, 1])?;
    let back = graph.reshape(view, NE)?;
    let sum = graph.add(back, square)?;
    let unused = graph.add(square, w)?;
    graph.expand(sum)?;
    let uses = |graph: &Graph| [x, w, square, view, back, sum, unused].map(|id| graph.uses(id));
    assert_eq!(uses(&graph), [2, 0, 2, 1, 1, 0, 0], "what is not expanded uses nothing");
    graph.expand(unused)?;
    assert_eq!(uses(&graph), [2, 1, 3, 1, 1, 0, 0]);
    // A copy uses the memory that it writes.
    let copy = graph.cpy(sum, w)?;
    graph.expand(copy)?;
    assert_eq!(uses(&graph), [2, 2, 3, 1, 1, 1, 0]);
    Ok(())
}

#[test]
fn a_leaf_can_be_expanded_alone() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let x = input(&mut graph, "x");
    graph.expand(x)?;
    assert_eq!((graph.leaves(), graph.nodes()), (&[x][..], &[][..]));
    Ok(())
}

#[test]
fn ids_of_other_graphs_are_unknown() -> Result<(), GraphError> {
    let mut other = Graph::new();
    let foreign = ["a", "b"].map(|name| input(&mut other, name))[1];
    let mut graph = Graph::new();
    let x = input(&mut graph, "x");
    let unknown = GraphError::Unknown(foreign);
    let before = graph.clone();
    assert_eq!(graph.add(x, foreign), Err(unknown.clone()));
    assert_eq!(graph.add(foreign, x), Err(unknown.clone()));
    assert_eq!(graph.view(foreign, [1; 4], [4; 4], 0), Err(unknown.clone()));
    assert_eq!(graph.soft_max(x, None, Some(foreign), 1.0, 0.0), Err(unknown.clone()));
    assert_eq!(graph.expand(foreign), Err(unknown.clone()));
    assert_eq!(graph.set_output(foreign), Err(unknown.clone()));
    assert_eq!(graph.set_name(foreign, "y"), Err(unknown.clone()));
    assert_eq!((graph.get(foreign), graph.uses(foreign)), (None, 0));
    assert_eq!(graph, before);
    assert_eq!(unknown.to_string(), format!("tensor {foreign:?} is not in this graph"));
    Ok(())
}

#[test]
fn names_and_flags() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let [x, twin] = ["x", "x"].map(|name| input(&mut graph, name));
    let y = graph.sqr(x)?;
    assert_eq!((graph.find("x"), graph.find("y")), (Some(x), None), "the first of a name");
    graph.set_name(y, "y")?;
    graph.set_output(y)?;
    let tensor = |id: TensorId| graph.tensor(id);
    assert_eq!((graph.find("y"), tensor(y).name(), tensor(y).kind()), (Some(y), "y", OpKind::Sqr));
    assert_eq!([x, twin, y].map(|id| tensor(id).is_output()), [false, false, true]);
    assert_eq!([x, twin, y].map(|id| tensor(id).leaf()), [Some(LeafKind::Input), Some(LeafKind::Input), None]);
    assert_eq!([x, twin, y].map(TensorId::index), [0, 1, 2]);
    assert_eq!([x, twin, y].map(|id| tensor(id).is_silent()), [true, true, false]);
    let ids: Vec<&Tensor> = [x, twin, y].map(tensor).to_vec();
    assert!(graph.tensors().iter().eq(ids));
    Ok(())
}
