//! Functions of which a plain formula loses digits, on every device, against f64.

use crate::devices::devices;
use std::sync::Arc;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::{Context, Device};
use wgfuse::fusion::FusionConfig;
use wgfuse::graph::{DType, Graph, LeafKind, TensorId, Unary};
use wgfuse::plan::{Leaves, PlanOptions};

/// What a function of a row of numbers gives on each device.
fn on_devices(x: &[f32], op: impl Fn(&mut Graph, TensorId) -> TensorId, check: impl Fn(&str, &[f32])) {
    let mut graph = Graph::new();
    let leaf = graph.leaf("x", LeafKind::Input, DType::F32, [x.len(), 1, 1, 1]).unwrap();
    let y = op(&mut graph, leaf);
    graph.set_output(y).unwrap();
    graph.expand(y).unwrap();
    let mut result = vec![0.0f32; graph.tensor(y).layout().elements()];
    let graph = Arc::new(graph);
    let cpu: Arc<dyn Device> = Arc::new(CpuDevice::new(FusionConfig::default()));
    let gpus = devices().iter().map(|device| Arc::clone(device) as Arc<dyn Device>);
    for device in std::iter::once(cpu).chain(gpus) {
        let mut context = Context::with_options(Arc::clone(&device), PlanOptions::default());
        let mut run = context.prepare(&graph, &Leaves::new()).unwrap();
        run.write(leaf, bytemuck::cast_slice(x)).unwrap();
        run.run().unwrap();
        run.read(y, bytemuck::cast_slice_mut(&mut result)).unwrap();
        check(&device.info().name, &result);
    }
}

#[test]
fn softplus_keeps_its_digits_where_it_is_small() {
    // From e^-40 to where it is the identity, both sides of every change of formula.
    let x: Vec<f32> = (-1600..=1200).map(|i| i as f32 / 40.0).chain([-4.000_001, -3.999_999, 20.000_002]).collect();
    on_devices(
        &x,
        |graph, x| graph.unary(x, Unary::Softplus).unwrap(),
        |device, found| {
            for (&x, &found) in x.iter().zip(found) {
                let expected = f64::from(x).exp().ln_1p();
                let error = (f64::from(found) - expected).abs() / expected;
                assert!(error < 1e-5, "{device}: softplus({x}) is {found:e}, expected {expected:e}");
            }
        },
    );
}

#[test]
fn sums_of_rows_of_every_length() {
    for length in [1, 31, 63, 64, 65, 1000, 4099] {
        let x: Vec<f32> = (0..length).map(|i| (i % 7) as f32 - 2.5).collect();
        let expected: f32 = x.iter().sum();
        on_devices(
            &x,
            |graph, x| graph.sum_rows(x).unwrap(),
            |device, found| assert_eq!(found, [expected], "{device}: {length} elements"),
        );
    }
}
