//! Random graphs on every device: fused as unfused, and as the CPU device computes them node by node.
//!
//! `WGFUSE_RANDOM_GRAPHS=N` runs so many graphs instead of the usual number, `WGFUSE_RANDOM_SEED=S` starts with another
//! seed.

mod generate;

use crate::devices::devices;
use crate::invariants;
use crate::numbers::{Random, decode, encode, indices};
use generate::{Fill, Generated, Leaf, contents, generate};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use wgfuse::cpu::CpuDevice;
use wgfuse::device::{Context, Device, DeviceBuffer};
use wgfuse::fusion::{FusionConfig, Matcher};
use wgfuse::graph::{BufferClass, DType, Graph, LeafKind, TensorId};
use wgfuse::plan::{Leaves, Place, PlanOptions, Slot, plan};

/// Graphs by default.
const GRAPHS: u64 = 60;

/// Graphs that take turns in one context: more than it remembers.
const BATCH: u64 = 20;

/// How often each graph runs, each time with other inputs and with the caches that it left.
const ROUNDS: u64 = 2;

/// Squared error over squared values that is allowed between devices.
const BETWEEN_DEVICES: f64 = 1e-6;

/// The same between a device's fused and unfused results.
const BY_FUSION: f64 = 1e-9;

/// Values whose mean square is smaller than this squared count as zeros: what is left of numbers that cancel out.
const NOTHING: f64 = 1e-2;

/// What a graph gave: the outputs after each round, then the caches.
type Results = Vec<Vec<f64>>;

struct Case {
    seed: u64,
    steps: usize,
    graph: Arc<Graph>,
    leaves: Vec<Leaf>,
    outputs: Vec<TensorId>,
    /// For each result, the coarsest type in which anything is stored that it follows from.
    coarsest: Vec<DType>,
}

impl Case {
    fn new(seed: u64, steps: usize) -> Self {
        let Generated { graph, leaves } = generate(seed, steps);
        let expanded = graph.nodes().iter().chain(graph.leaves());
        let outputs: Vec<TensorId> = expanded.copied().filter(|&id| graph.tensor(id).is_output()).collect();
        let known = |leaf: &Leaf| graph.leaves().contains(&leaf.id);
        let leaves: Vec<Leaf> = leaves.into_iter().filter(known).collect();
        let memory = coarseness(&graph);
        let caches = leaves.iter().filter(|leaf| leaf.kind == LeafKind::Cache).map(|leaf| leaf.id);
        let read = (0..ROUNDS).flat_map(|_| outputs.clone()).chain(caches);
        let coarsest = read.map(|id| memory[graph.root(id).index()]).collect();
        Self { seed, steps, graph: Arc::new(graph), leaves, outputs, coarsest }
    }

    /// The bytes of a leaf before a round; `noise` relative to each number.
    fn bytes(&self, leaf: &Leaf, round: u64, noise: f64) -> Vec<u8> {
        let layout = self.graph.tensor(leaf.id).layout();
        let mut random = Random(self.seed ^ (leaf.id.index() as u64) << 32 ^ round << 56);
        let mut values = contents(layout, leaf.fill, &mut random);
        if matches!(leaf.fill, Fill::Uniform(..) | Fill::Apart) {
            values.iter_mut().for_each(|value| *value *= 1.0 + noise * random.float());
        }
        encode(layout.dtype, &values)
    }

    fn of_kind(&self, kind: LeafKind) -> impl Iterator<Item = &Leaf> {
        self.leaves.iter().filter(move |leaf| leaf.kind == kind)
    }

    /// What the numbers of a result are.
    fn name(&self, at: usize) -> String {
        let outputs = self.outputs.len();
        let (round, id) = match at.checked_sub(outputs * ROUNDS as usize) {
            None => (at / outputs, self.outputs[at % outputs]),
            Some(cache) => (ROUNDS as usize, self.of_kind(LeafKind::Cache).nth(cache).expect("a cache").id),
        };
        format!("{:?} {} after round {round}", id, self.graph.tensor(id).kind())
    }

    /// The nodes, one a line.
    fn listing(&self) -> String {
        let mut text = String::new();
        for &id in self.graph.leaves().iter().chain(self.graph.nodes()) {
            let tensor = self.graph.tensor(id);
            let sources: Vec<usize> = tensor.sources().map(TensorId::index).collect();
            let output = if tensor.is_output() { " output" } else { "" };
            let view = tensor.view().map_or(String::new(), |v| format!(" in {} at {}", v.root.index(), v.offset));
            let leaf = tensor.leaf().map_or(String::new(), |kind| format!(" {kind:?}"));
            let _ = writeln!(
                text,
                "{} = {:?}{leaf} of {sources:?}: {}{view}{output}",
                id.index(),
                tensor.op(),
                tensor.layout()
            );
        }
        text
    }
}

/// For each tensor that owns memory, the coarsest type in which anything is stored that reaches it.
fn coarseness(graph: &Graph) -> Vec<DType> {
    // The finest first. What integers are made of does not matter to them.
    let rank =
        |dtype: DType| [DType::I64, DType::I32, DType::F32, DType::F16, DType::BF16].iter().position(|&d| d == dtype);
    let mut memory = vec![DType::F32; graph.tensors().len()];
    for _ in 0..ROUNDS {
        for &id in graph.nodes().iter().filter(|&&id| !graph.tensor(id).kind().is_view()) {
            let tensor = graph.tensor(id);
            let sources = tensor.sources().map(|source| memory[graph.root(source).index()]);
            let all = sources.chain([tensor.dtype(), memory[graph.root(id).index()]]);
            memory[graph.root(id).index()] = all.max_by_key(|&dtype| rank(dtype)).unwrap_or(DType::F32);
        }
    }
    memory
}

/// A case whose leaves have memory on a device.
struct Placed<'a> {
    case: &'a Case,
    leaves: Leaves,
    /// Keeps the memory.
    _buffers: Vec<DeviceBuffer>,
    results: Results,
}

impl<'a> Placed<'a> {
    /// Weights share a buffer in every second case, and so do caches in every third.
    fn new(case: &'a Case, device: &Arc<dyn Device>, noise: f64) -> Self {
        let alignment = device.limits().alignment;
        let mut leaves = Leaves::new();
        let mut buffers = Vec::new();
        for (kind, class, shared) in [
            (LeafKind::Weight, BufferClass::Weight, case.seed.is_multiple_of(2)),
            (LeafKind::Cache, BufferClass::Cache, case.seed.is_multiple_of(3)),
        ] {
            let mut groups: Vec<Vec<(TensorId, Vec<u8>)>> = Vec::new();
            for leaf in case.of_kind(kind) {
                let leaf = (leaf.id, case.bytes(leaf, 0, noise));
                match groups.last_mut() {
                    Some(group) if shared => group.push(leaf),
                    Some(_) | None => groups.push(vec![leaf]),
                }
            }
            for group in groups {
                let mut end = 0usize;
                let offsets: Vec<usize> = group
                    .iter()
                    .map(|(_, bytes)| {
                        let start = end.next_multiple_of(alignment);
                        end = start + bytes.len();
                        start
                    })
                    .collect();
                let buffer = DeviceBuffer::new(device, class, end).expect("a small buffer");
                for ((id, bytes), offset) in group.iter().zip(offsets) {
                    device.write(buffer.id(), offset, bytes).expect("bytes of the buffer");
                    let place = Place::Buffer(buffer.id());
                    leaves.insert(*id, Slot { place, offset, bytes: bytes.len() });
                }
                buffers.push(buffer);
            }
        }
        Self { case, leaves, _buffers: buffers, results: Vec::new() }
    }

    fn round(&mut self, context: &mut Context, round: u64, noise: f64) -> Result<(), String> {
        let case = self.case;
        let mut run = context.prepare(&case.graph, &self.leaves).map_err(|error| error.to_string())?;
        for leaf in case.of_kind(LeafKind::Input) {
            run.write(leaf.id, &case.bytes(leaf, round, noise)).map_err(|error| error.to_string())?;
        }
        run.run().map_err(|error| error.to_string())?;
        let mut wanted = case.outputs.clone();
        if round + 1 == ROUNDS {
            wanted.extend(case.of_kind(LeafKind::Cache).map(|leaf| leaf.id));
        }
        for id in wanted {
            let tensor = case.graph.tensor(id);
            let mut bytes = vec![0; tensor.layout().extent()];
            run.read(id, &mut bytes).map_err(|error| error.to_string())?;
            let (nb, unit) = (tensor.nb(), tensor.dtype().block_bytes());
            let at = indices(tensor.ne()).map(|at| (0..4).map(|dim| at[dim] * nb[dim]).sum::<usize>());
            self.results.push(at.map(|at| decode(tensor.dtype(), &bytes[at..at + unit])).collect());
        }
        Ok(())
    }
}

/// Runs cases by turns in one context.
fn run(
    device: &Arc<dyn Device>,
    options: PlanOptions,
    cases: &[&Case],
    noise: f64,
) -> Result<Vec<Results>, (usize, String)> {
    let mut context = Context::with_options(Arc::clone(device), options);
    let mut placed: Vec<Placed> = cases.iter().map(|case| Placed::new(case, device, noise)).collect();
    for round in 0..ROUNDS {
        for (at, placed) in placed.iter_mut().enumerate() {
            placed.round(&mut context, round, noise).map_err(|error| (at, error))?;
        }
    }
    Ok(placed.into_iter().map(|placed| placed.results).collect())
}

/// The squared error over the squared values; infinite where one is a number and the other none.
fn nmse(found: &[f64], expected: &[f64]) -> f64 {
    let (mut error, mut size) = (0.0, expected.len() as f64 * NOTHING * NOTHING);
    for (&found, &expected) in found.iter().zip(expected) {
        let same = found == expected || (found.is_nan() && expected.is_nan());
        if !same {
            let difference = (found - expected).abs();
            error += if difference.is_finite() { difference * difference } else { f64::INFINITY };
        }
        if expected.is_finite() {
            size += expected * expected;
        }
    }
    if error == 0.0 { 0.0 } else { error / size }
}

/// How far fused results may be from unfused ones where numbers were stored in this type on the way. A sum of up to
/// twenty terms is rounded after every term in one and once in the other; each rounding is half a unit in the last
/// place.
fn by_fusion(coarsest: DType) -> f64 {
    let unit: f64 = match coarsest {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 | DType::I32 | DType::I64 | DType::Block(_) => return BY_FUSION,
    };
    100.0 * unit * unit
}

/// What one case must give.
struct Expected {
    results: Results,
    /// By how much each result changes with the last digits of the leaves: what no device can be held to.
    noise: Vec<f64>,
}

/// A difference, and where; `allowed` where nothing was stored in a coarse type.
fn difference(case: &Case, found: &Results, expected: &Results, noise: &[f64], allowed: f64) -> Option<String> {
    assert_eq!(found.len(), expected.len());
    let limit = |at: usize| allowed.max(by_fusion(case.coarsest[at])).max(100.0 * noise[at]);
    let at = (0..found.len()).find(|&at| nmse(&found[at], &expected[at]) > limit(at))?;
    let far = |(a, b): (&f64, &f64)| (a - b).abs() > 1e-3 * b.abs().max(NOTHING) || a.is_finite() != b.is_finite();
    let first = found[at].iter().zip(&expected[at]).position(far).unwrap_or(0);
    Some(format!(
        "{}: {:e} off, {:e} allowed; element {first} is {} instead of {}",
        case.name(at),
        nmse(&found[at], &expected[at]),
        limit(at),
        found[at][first],
        expected[at][first]
    ))
}

fn unfused() -> PlanOptions {
    PlanOptions { matcher: Matcher::off(), ..PlanOptions::default() }
}

/// The ways to plan that a device is tried with; the first is what the others are compared with.
fn ways(seed: u64) -> Vec<(&'static str, PlanOptions)> {
    let fused = PlanOptions::default();
    let mut ways = vec![("unfused", unfused()), ("fused", fused)];
    ways.push(match seed / BATCH % 3 {
        0 => ("fused, in the builder's order", PlanOptions { optimize: false, ..fused }),
        1 => ("fused, one by one", PlanOptions { concurrency: false, ..fused }),
        _ => {
            ("fused, in the builder's order, one by one", PlanOptions { optimize: false, concurrency: false, ..fused })
        }
    });
    ways
}

fn judge() -> Arc<dyn Device> {
    Arc::new(CpuDevice::new(FusionConfig::default()))
}

/// What the CPU device gives, node by node in the builder's order.
fn judged(cases: &[&Case]) -> Vec<Expected> {
    let options = PlanOptions { optimize: false, concurrency: false, ..unfused() };
    let run = |noise| match run(&judge(), options, cases, noise) {
        Ok(results) => results,
        Err((at, error)) => panic!("seed {}: {error}\n{}", cases[at].seed, cases[at].listing()),
    };
    let noise = |(exact, noisy): (&Results, &Results)| exact.iter().zip(noisy).map(|(a, b)| nmse(b, a)).collect();
    let (exact, noisy) = (run(0.0), run(1e-6));
    let noises: Vec<Vec<f64>> = exact.iter().zip(&noisy).map(noise).collect();
    exact.into_iter().zip(noises).map(|(results, noise)| Expected { results, noise }).collect()
}

/// Runs cases by turns on a device in every way; the first failure with the number of its case.
fn check(device: &Arc<dyn Device>, cases: &[&Case], expected: &[Expected]) -> Result<(), (usize, String)> {
    let mut first: Option<Vec<Results>> = None;
    for (way, options) in ways(cases[0].seed) {
        for (at, case) in cases.iter().enumerate() {
            let leaves = Placed::new(case, device, 0.0).leaves;
            let limits = device.limits();
            let plan = plan(&case.graph, &leaves, &limits, &options).map_err(|error| (at, error.to_string()))?;
            invariants::check(&case.graph, &plan, &limits);
        }
        for (at, case) in cases.iter().enumerate() {
            // They all run.
            let supported = case.graph.nodes().iter().try_for_each(|&node| device.supports(&case.graph, node));
            supported.map_err(|error| (at, format!("{way}: {error}")))?;
        }
        let found = run(device, options, cases, 0.0).map_err(|(at, error)| (at, format!("{way}: {error}")))?;
        for (at, (case, found)) in cases.iter().zip(&found).enumerate() {
            let Expected { results, noise } = &expected[at];
            let off = difference(case, found, results, noise, BETWEEN_DEVICES)
                .map(|text| format!("from the CPU: {text}"))
                .or_else(|| {
                    let unfused = &first.as_ref()?[at];
                    let text = difference(case, found, unfused, noise, BY_FUSION)?;
                    Some(format!("from unfused: {text}"))
                });
            if let Some(text) = off {
                return Err((at, format!("{way}, {text}")));
            }
        }
        first.get_or_insert(found);
    }
    Ok(())
}

/// The shortest beginning of a case that fails alone, or the whole of it.
fn report(device: &Arc<dyn Device>, case: &Case, error: &str) -> String {
    let name = &device.info().name;
    let alone = (1..=case.steps).find_map(|steps| {
        let shorter = Case::new(case.seed, steps);
        let (_, error) = check(device, &[&shorter], &judged(&[&shorter])).err()?;
        Some((shorter, error))
    });
    let (case, error, note) = match &alone {
        Some((shorter, error)) => (shorter, error.as_str(), ""),
        None => (case, error, " (right when it runs alone)"),
    };
    let leaves = Placed::new(case, device, 0.0).leaves;
    let plan = plan(&case.graph, &leaves, &device.limits(), &PlanOptions::default());
    let plan = plan.map_or_else(|error| error.to_string(), |plan| plan.listing(&case.graph));
    let Case { seed, steps, .. } = case;
    format!("{name}: seed {seed}, {steps} steps{note}: {error}\n{}\nfused:\n{plan}", case.listing())
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is {text}, expected a number")),
        Err(_) => default,
    }
}

#[test]
fn random_graphs_give_the_same_on_every_device_fused_and_unfused() {
    let all: Vec<Arc<dyn Device>> =
        std::iter::once(judge()).chain(devices().iter().map(|gpu| gpu.clone() as Arc<dyn Device>)).collect();
    let first = number("WGFUSE_RANDOM_SEED", 0);
    let seeds: Vec<u64> = (first..first + number("WGFUSE_RANDOM_GRAPHS", GRAPHS)).collect();
    let mut fused = BTreeMap::<String, usize>::new();
    let mut failures = Vec::new();
    for batch in seeds.chunks(BATCH as usize) {
        let cases: Vec<Case> = batch.iter().map(|&seed| Case::new(seed, 4 + seed as usize % 21)).collect();
        for case in &cases {
            let leaves = Placed::new(case, &all[0], 0.0).leaves;
            let plan = plan(&case.graph, &leaves, &all[0].limits(), &PlanOptions::default());
            plan.iter().flat_map(|plan| plan.fusions()).for_each(|row| *fused.entry(row.label()).or_default() += 1);
        }
        let cases: Vec<&Case> = cases.iter().collect();
        let expected = judged(&cases);
        for device in &all {
            if let Err((at, error)) = check(device, &cases, &expected) {
                failures.push(report(device, cases[at], &error));
                println!("{}", failures[failures.len() - 1]);
            }
        }
    }
    println!("{} graphs fused {fused:?}", seeds.len());
    assert!(failures.is_empty(), "{} failures, the first: {}", failures.len(), failures[0]);
    assert!(fused.len() == 12 || seeds.len() < GRAPHS as usize, "every row of the table is met: {fused:?}");
}
