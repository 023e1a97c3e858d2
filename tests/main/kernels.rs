//! Every harder kernel against a plain f64 computation, on every GPU of this machine and in every form.

use crate::devices::unfused;
use half::{bf16, f16};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use wgfuse::device::{Device, DeviceError};
use wgfuse::fusion::{Fusion, TABLE};
use wgfuse::gpu::{GpuDevice, OpenOptions};
use wgfuse::graph::{
    BufferClass, DType, FlashAttn, Graph, LeafKind, OpKind, Precision, Rope, RopeMode, SortOrder, TensorId,
};
use wgfuse::plan::{Group, Leaves, Slot, plan};

/// Vulkan with all it has, GL, and Vulkan with neither subgroups nor f16.
static DEVICES: LazyLock<Vec<(&str, Arc<GpuDevice>)>> = LazyLock::new(|| {
    let forms = [("VK0", "VK0", true), ("GL0", "GL0", true), ("plain VK0", "VK0", false)];
    let open = |name: &str, full| {
        GpuDevice::open_with(&OpenOptions {
            name: Some(name.to_owned()),
            f16: full,
            subgroups: full,
            ..OpenOptions::default()
        })
    };
    let required = std::env::var("WGFUSE_REQUIRE_GPU").is_ok_and(|value| value == "1");
    forms
        .into_iter()
        .filter_map(|(label, name, full)| match open(name, full) {
            Ok(device) => Some((label, device)),
            Err(error) => {
                assert!(!required, "{label}: {error}");
                eprintln!("skipped {label}: {error}");
                None
            }
        })
        .collect()
});

/// How a source lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lay {
    Dense,
    /// A window with gaps between its rows, which starts on an odd element.
    Padded,
    /// Dimensions 1 and 2 exchanged.
    Permuted,
    /// Dimensions 0 and 1 exchanged.
    Transposed,
}

/// A graph with the values of its leaves.
struct Case {
    graph: Graph,
    values: HashMap<TensorId, Vec<f64>>,
    random: u64,
}

impl Case {
    fn new(seed: u64) -> Self {
        Self { graph: Graph::new(), values: HashMap::new(), random: seed }
    }

    /// The next number of a sequence, evenly spread over -1 to 1.
    fn next(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn leaf(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4], value: impl Fn(f64) -> f64) -> TensorId {
        let id = self.graph.leaf("", kind, dtype, ne).unwrap();
        let count = ne.iter().product();
        let values = (0..count).map(|_| rounded(dtype, value(self.next()))).collect();
        self.values.insert(id, values);
        id
    }

    /// An input between -1 and 1.
    fn input(&mut self, dtype: DType, ne: [usize; 4]) -> TensorId {
        self.leaf(LeafKind::Input, dtype, ne, |x| x)
    }

    fn given(&mut self, dtype: DType, ne: [usize; 4], values: Vec<f64>) -> TensorId {
        let id = self.graph.leaf("", LeafKind::Input, dtype, ne).unwrap();
        self.values.insert(id, values.into_iter().map(|value| rounded(dtype, value)).collect());
        id
    }

    /// A tensor of this shape in some layout over a leaf.
    fn laid(&mut self, kind: LeafKind, dtype: DType, ne: [usize; 4], lay: Lay) -> TensorId {
        let [a, b, c, d] = ne;
        match lay {
            Lay::Dense => self.leaf(kind, dtype, ne, |x| x),
            Lay::Padded => {
                let whole = self.leaf(kind, dtype, [a + 4, b + 1, c + 1, d + 1], |x| x);
                let nb = self.graph.tensor(whole).nb();
                self.graph.view(whole, ne, nb, nb[1] + 3 * nb[0]).unwrap()
            }
            Lay::Permuted => {
                let whole = self.leaf(kind, dtype, [a, c, b, d], |x| x);
                self.graph.permute(whole, [0, 2, 1, 3]).unwrap()
            }
            Lay::Transposed => {
                let whole = self.leaf(kind, dtype, [b, a, c, d], |x| x);
                self.graph.transpose(whole).unwrap()
            }
        }
    }

    /// An element of a leaf or of a view of one.
    fn at(&self, id: TensorId, index: [usize; 4]) -> f64 {
        let tensor = self.graph.tensor(id);
        let (root, offset) = tensor.view().map_or((id, 0), |view| (view.root, view.offset));
        let bytes = offset + index.iter().zip(tensor.nb()).map(|(i, nb)| i * nb).sum::<usize>();
        self.values[&root][bytes / tensor.dtype().block_bytes()]
    }

    /// Runs the graph up to `results`, in the groups that `fuse` makes of its nodes, and reads `results` back.
    fn run(&self, device: &GpuDevice, results: &[TensorId], fuse: &[Group]) -> Vec<Vec<f64>> {
        let mut graph = self.graph.clone();
        results.iter().for_each(|&id| graph.expand(id).unwrap());
        // Groups formed by hand read their sources later than the plan thinks: everything keeps its memory.
        let kept: Vec<TensorId> = graph.leaves().iter().chain(results).copied().collect();
        kept.into_iter().for_each(|id| graph.set_output(id).unwrap());
        let graph = Arc::new(graph);
        let mut buffers = Vec::new();
        let mut leaves = Leaves::new();
        for &id in graph.leaves() {
            let class = graph.class(id);
            if class != BufferClass::Computed {
                let bytes = encoded(graph.tensor(id).dtype(), &self.values[&id]);
                let buffer = device.create_buffer(class, bytes.len()).unwrap();
                device.write(buffer, 0, &bytes).unwrap();
                let place = wgfuse::plan::Place::Buffer(buffer);
                leaves.insert(id, Slot { place, offset: 0, bytes: bytes.len() });
                buffers.push(buffer);
            }
        }
        let mut plan = plan(&graph, &leaves, &device.limits(), &unfused()).unwrap();
        for group in fuse {
            let last = *group.nodes.last().unwrap();
            plan.groups.retain(|single| single.nodes[0] == last || !group.nodes.contains(&single.nodes[0]));
            *plan.groups.iter_mut().find(|single| single.nodes[0] == last).unwrap() = group.clone();
        }
        let plan = Arc::new(plan);
        let arenas: Vec<_> = plan
            .placement
            .arenas()
            .iter()
            .map(|&bytes| {
                let id = device.create_buffer(BufferClass::Computed, bytes).unwrap();
                // Whatever is read without having been written becomes a NaN in the result.
                device.write(id, 0, &vec![0xff; bytes]).unwrap();
                id
            })
            .collect();
        let place = |slot: Slot| match slot.place {
            wgfuse::plan::Place::Arena(index) => arenas[index as usize],
            wgfuse::plan::Place::Buffer(id) => id,
        };
        for &id in graph.leaves().iter().filter(|&&id| graph.class(id) == BufferClass::Computed) {
            let slot = plan.placement.slot(&graph, id).unwrap();
            device.write(place(slot), slot.offset, &encoded(graph.tensor(id).dtype(), &self.values[&id])).unwrap();
        }
        device.load(&graph, &plan, &arenas).unwrap().run().unwrap();
        let read = |&id: &TensorId| {
            let slot = plan.placement.slot(&graph, id).unwrap();
            let mut bytes = vec![0; slot.bytes];
            device.read(place(slot), slot.offset, &mut bytes).unwrap();
            decoded(graph.tensor(id).dtype(), &bytes)
        };
        let values = results.iter().map(read).collect();
        buffers.into_iter().chain(arenas).for_each(|id| device.destroy_buffer(id));
        values
    }

    /// Compares a node on every device with the values it should have.
    fn check(&self, what: &str, node: TensorId, limit: f64, expected: Vec<f64>) {
        for (label, device) in DEVICES.iter() {
            let error = nmse(&expected, &self.run(device, &[node], &[])[0]);
            assert!(error <= limit, "{label}: {what}: NMSE {error:e}, more than {limit:e}");
            report(label, what, error);
        }
    }

    /// As [`Case::check`], with what `expect` gives for each element.
    fn check_each(&self, what: &str, node: TensorId, limit: f64, expect: impl Fn([usize; 4]) -> f64) {
        self.check(what, node, limit, indices(self.graph.tensor(node).ne()).map(expect).collect());
    }
}

/// With `WGFUSE_TEST_NMSE` set, prints every error.
fn report(label: &str, what: &str, error: f64) {
    if std::env::var_os("WGFUSE_TEST_NMSE").is_some() {
        println!("{error:9.2e} {label}: {what}");
    }
}

fn indices([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..a * b * c * d).map(move |i| [i % a, i / a % b, i / (a * b) % c, i / (a * b * c)])
}

/// A NaN anywhere makes it a NaN, which no limit allows.
fn nmse(expected: &[f64], found: &[f64]) -> f64 {
    assert_eq!(expected.len(), found.len());
    let error: f64 = expected.iter().zip(found).map(|(e, f)| (e - f) * (e - f)).sum();
    let power: f64 = expected.iter().map(|e| e * e).sum();
    if error == 0.0 { 0.0 } else { error / power.max(1e-30) }
}

fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16::from_f64(value).to_f64(),
        DType::BF16 => bf16::from_f64(value).to_f64(),
        DType::I32 | DType::I64 | DType::Block(_) => value,
    }
}

fn encoded(dtype: DType, values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&value| match dtype {
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            DType::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            DType::I32 => (value as i32).to_le_bytes().to_vec(),
            DType::I64 => (value as i64).to_le_bytes().to_vec(),
            DType::Block(_) => unreachable!("blocks hold no single elements"),
        })
        .collect()
}

fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(dtype.block_bytes())
        .map(|b| match dtype {
            DType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
            DType::F16 => f16::from_le_bytes([b[0], b[1]]).to_f64(),
            DType::BF16 => bf16::from_le_bytes([b[0], b[1]]).to_f64(),
            DType::I32 => i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
            DType::I64 => i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
            DType::Block(_) => unreachable!("blocks hold no single elements"),
        })
        .collect()
}

fn row_of_table(ops: &[OpKind]) -> Option<&'static Fusion> {
    TABLE.iter().find(|row| row.ops == ops)
}

const INPUT: LeafKind = LeafKind::Input;
const WEIGHT: LeafKind = LeafKind::Weight;
const F32: DType = DType::F32;

/// A tensor like `x` with every row normalised.
fn normalised(case: &Case, x: TensorId, centred: bool, eps: f64) -> Vec<f64> {
    let [width, n1, n2, n3] = case.graph.tensor(x).ne();
    let normalise = |[_, i1, i2, i3]: [usize; 4]| {
        let row: Vec<f64> = (0..width).map(|i| case.at(x, [i, i1, i2, i3])).collect();
        let mean = if centred { row.iter().sum::<f64>() / width as f64 } else { 0.0 };
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / width as f64;
        row.into_iter().map(move |v| (v - mean) / (variance + eps).sqrt())
    };
    indices([1, n1, n2, n3]).flat_map(normalise).collect()
}

#[test]
fn norms() {
    let eps = 1e-3f32;
    for width in [1, 3, 31, 64, 300, 1025, 5000] {
        for (lay, outer) in [(Lay::Dense, [5, 1, 1]), (Lay::Padded, [3, 2, 2]), (Lay::Permuted, [4, 3, 1])] {
            for centred in [false, true] {
                let mut case = Case::new(width as u64);
                let x = case.laid(INPUT, F32, [width, outer[0], outer[1], outer[2]], lay);
                let y = if centred { case.graph.norm(x, eps) } else { case.graph.rms_norm(x, eps) }.unwrap();
                let expected = normalised(&case, x, centred, eps.into());
                case.check(&format!("norm centred {centred} {width} {lay:?}"), y, 1e-12, expected);
            }
        }
    }
}

#[test]
fn a_large_mean_costs_no_digits() {
    let mut case = Case::new(1);
    let x = case.leaf(INPUT, F32, [999, 3, 1, 1], |v| 300.0 + v);
    let y = case.graph.norm(x, 1e-5).unwrap();
    // The mean itself is off by half a bit of 300.
    case.check("norm with a large mean", y, 1e-8, normalised(&case, x, true, f64::from(1e-5f32)));
}

#[test]
fn fused_norms() {
    let eps = 2e-5f32;
    for (width, outer) in [(5, [3, 2, 2]), (128, [4, 6, 1]), (2050, [3, 1, 1])] {
        // Weights of one row, and of rows that repeat in different dimensions.
        for w_outer in [[1, 1, 1], [outer[0], 1, 1], [1, outer[1], 1], outer] {
            for (centred, steps, weight_first) in
                [(false, 1, false), (false, 2, false), (true, 1, false), (true, 2, false), (false, 1, true)]
            {
                if weight_first && w_outer != outer {
                    continue;
                }
                let mut case = Case::new(width as u64);
                let x = case.laid(INPUT, F32, [width, outer[0], outer[1], outer[2]], Lay::Padded);
                let w = case.leaf(WEIGHT, F32, [width, w_outer[0], w_outer[1], w_outer[2]], |v| v + 0.5);
                let b = case.leaf(WEIGHT, F32, [width, 1, 1, 1], |v| v);
                let norm = if centred { case.graph.norm(x, eps) } else { case.graph.rms_norm(x, eps) }.unwrap();
                let mul = if weight_first { case.graph.mul(w, norm) } else { case.graph.mul(norm, w) }.unwrap();
                let add = case.graph.add(mul, b).unwrap();
                let nodes = [norm, mul, add][..=steps].to_vec();
                let kinds: Vec<_> = nodes.iter().map(|&id| case.graph.tensor(id).kind()).collect();
                let last = nodes[steps];
                let group = Group { fusion: row_of_table(&kinds), nodes };
                let what = format!("{kinds:?} of {width} with {w_outer:?}");
                let expected: Vec<f64> = indices(case.graph.tensor(last).ne())
                    .zip(normalised(&case, x, centred, eps.into()))
                    .map(|([i, i1, i2, i3], value)| {
                        let row = [i, i1 % w_outer[0], i2 % w_outer[1], i3 % w_outer[2]];
                        let product = value * case.at(w, row);
                        if steps == 2 { product + case.at(b, [i, 0, 0, 0]) } else { product }
                    })
                    .collect();
                for (label, device) in DEVICES.iter() {
                    let fused = case.run(device, &[last], std::slice::from_ref(&group));
                    let unfused = case.run(device, &[last], &[]);
                    let error = nmse(&expected, &fused[0]);
                    assert!(error <= 1e-12, "{label}: {what}: NMSE {error:e}");
                    let difference = nmse(&unfused[0], &fused[0]);
                    assert!(difference <= 1e-12, "{label}: {what}: fused differs by {difference:e}");
                    report(label, &what, error.max(difference));
                }
            }
        }
    }
}

/// ALiBi's slope of a head.
fn slope(max_bias: f64, head: usize, heads: usize) -> f64 {
    let early = 1usize << heads.ilog2();
    let exponent = if head < early {
        -max_bias / early as f64 * (head + 1) as f64
    } else {
        -max_bias / (2 * early) as f64 * (2 * (head - early) + 1) as f64
    };
    exponent.exp2()
}

/// A mask of small numbers in which every third element and one whole row is masked.
fn mask_of(case: &mut Case, dtype: DType, ne: [usize; 4]) -> TensorId {
    let values = indices(ne)
        .map(|[i, i1, _, _]| if i % 3 == 1 || (ne[1] > 2 && i1 == 1) { f64::NEG_INFINITY } else { case.next() })
        .collect();
    case.given(dtype, ne, values)
}

#[test]
fn soft_maxes() {
    for (ne, mask_outer) in [
        ([1, 1, 1, 1], [1, 1, 1]),
        ([7, 3, 6, 2], [3, 1, 1]),
        ([64, 5, 8, 2], [7, 2, 2]),
        ([1000, 3, 5, 1], [3, 5, 1]),
        ([5000, 1, 2, 1], [1, 1, 1]),
    ] {
        for (mask, sinks, max_bias, lay) in [
            (None, false, 0.0, Lay::Padded),
            (Some(DType::F16), false, 0.0, Lay::Permuted),
            (Some(F32), true, 8.0, Lay::Dense),
            (Some(DType::F16), true, 4.0, Lay::Dense),
        ] {
            let mut case = Case::new(ne[0] as u64);
            let x = case.laid(INPUT, F32, ne, lay);
            let mask_ne = [ne[0], mask_outer[0], mask_outer[1], mask_outer[2]];
            let mask = mask.map(|dtype| mask_of(&mut case, dtype, mask_ne));
            let sinks = sinks.then(|| case.leaf(WEIGHT, F32, [ne[2], 1, 1, 1], |v| 3.0 * v));
            let scale = 4.5f32;
            let y = case.graph.soft_max(x, mask, sinks, scale, max_bias).unwrap();
            let logit = |[i, i1, i2, i3]: [usize; 4]| {
                let bias = mask.map_or(0.0, |mask| {
                    slope(max_bias.into(), i2, ne[2]) * case.at(mask, [i, i1, i2 % mask_ne[2], i3 % mask_ne[3]])
                });
                case.at(x, [i, i1, i2, i3]) * f64::from(scale) + bias
            };
            let what = format!("soft_max {ne:?} {mask:?} {sinks:?} {max_bias} {lay:?}");
            let expected = indices([1, ne[1], ne[2], ne[3]]).flat_map(|[_, i1, i2, i3]| {
                let weights: Vec<f64> = (0..ne[0]).map(|i| logit([i, i1, i2, i3]).exp()).collect();
                let sink = sinks.map_or(0.0, |sinks| case.at(sinks, [i2, 0, 0, 0]).exp());
                let sum = weights.iter().sum::<f64>() + sink;
                weights.into_iter().map(move |weight| if sum == 0.0 { 0.0 } else { weight / sum })
            });
            case.check(&what, y, 1e-11, expected.collect());
        }
    }
}

#[test]
fn sorts() {
    for length in [1, 2, 3, 16, 100, 1000, 2048, 2049, 9000] {
        for (order, lay) in [(SortOrder::Ascending, Lay::Padded), (SortOrder::Descending, Lay::Dense)] {
            let mut case = Case::new(length as u64);
            let ne = [length, 2, 3, 1];
            let x = case.laid(INPUT, F32, ne, lay);
            let root = case.graph.root(x);
            // Many equal values, both zeros, infinities, and NaNs of both signs.
            for (i, value) in case.values.get_mut(&root).unwrap().iter_mut().enumerate() {
                *value = match i % 97 {
                    50 => f64::NAN,
                    51 => -f64::NAN,
                    52 => f64::INFINITY,
                    53 => f64::NEG_INFINITY,
                    54 => -0.0,
                    55 => 0.0,
                    _ => (*value * 50.0).round(),
                };
            }
            let y = case.graph.argsort(x, order).unwrap();
            // NaNs of either sign are equal to each other and above all numbers, as are both zeros to each other.
            let key = |value: f64| if value.is_nan() { f64::NAN.abs() } else { value + 0.0 };
            let expected: Vec<f64> = (0..6)
                .flat_map(|row| {
                    let value = |i: usize| key(case.at(x, [i, row % 2, row / 2, 0]));
                    let mut order_of: Vec<usize> = (0..length).collect();
                    order_of.sort_by(|&a, &b| match order {
                        SortOrder::Ascending => value(a).total_cmp(&value(b)),
                        SortOrder::Descending => value(b).total_cmp(&value(a)),
                    });
                    order_of.into_iter().map(|i| i as f64).collect::<Vec<_>>()
                })
                .collect();
            for (label, device) in DEVICES.iter() {
                assert_eq!(case.run(device, &[y], &[])[0], expected, "{label}: {length} {order:?}");
            }
        }
    }
}

#[test]
fn products() {
    let shapes = [
        // k, m, n, outer of the matrix, outer of the columns
        (1, 1, 1, [1, 1], [1, 1]),
        (3, 5, 2, [1, 1], [2, 3]),
        (64, 33, 4, [2, 1], [6, 2]),
        (70, 7, 8, [1, 2], [1, 2]),
        (300, 6, 9, [1, 1], [2, 1]),
        (33, 31, 40, [2, 1], [4, 1]),
        (130, 70, 65, [1, 1], [1, 1]),
        (17, 200, 100, [3, 2], [3, 4]),
        (4100, 9, 1, [1, 1], [1, 1]),
        (2500, 40, 37, [1, 1], [1, 1]),
    ];
    for (k, m, n, a_outer, b_outer) in shapes {
        for (dtype, kind, a_lay, b_lay) in [
            (F32, WEIGHT, Lay::Dense, Lay::Dense),
            (DType::F16, WEIGHT, Lay::Dense, Lay::Padded),
            (DType::BF16, WEIGHT, Lay::Padded, Lay::Dense),
            (F32, INPUT, Lay::Permuted, Lay::Transposed),
            (DType::F16, LeafKind::Cache, Lay::Padded, Lay::Permuted),
        ] {
            let mut case = Case::new((k * m + n) as u64);
            let a = case.laid(kind, dtype, [k, m, a_outer[0], a_outer[1]], a_lay);
            let b = case.laid(INPUT, F32, [k, n, b_outer[0], b_outer[1]], b_lay);
            let y = case.graph.mul_mat(a, b).unwrap();
            let repeat = [b_outer[0] / a_outer[0], b_outer[1] / a_outer[1]];
            let what = format!("mul_mat {k}x{m} {dtype} {a_lay:?} by {n} {b_lay:?}");
            case.check_each(&what, y, 1e-11, |[i, j, i2, i3]| {
                let term = |l| case.at(a, [l, i, i2 / repeat[0], i3 / repeat[1]]) * case.at(b, [l, j, i2, i3]);
                (0..k).map(term).sum()
            });
        }
    }
}

#[test]
fn products_by_id() {
    for (k, m, experts, used, tokens) in
        [(5, 3, 2, 1, 1), (64, 33, 4, 2, 1), (40, 70, 8, 3, 7), (33, 35, 3, 2, 40), (64, 40, 2, 2, 600)]
    {
        for (dtype, shared, lay) in [(F32, true, Lay::Dense), (DType::F16, false, Lay::Padded)] {
            let mut case = Case::new((k + m) as u64);
            let a = case.leaf(WEIGHT, dtype, [k, m, experts, 1], |v| v);
            let b = case.laid(INPUT, F32, [k, if shared { 1 } else { used }, tokens, 1], lay);
            // The ids are the start of longer rows, as after a sort; some name no expert.
            let all = (0..(used + 2) * tokens)
                .map(|i| match i % 11 {
                    7 => -1.0,
                    9 => experts as f64,
                    _ => ((case.next() + 1.0) * experts as f64 / 2.0).floor(),
                })
                .collect();
            let all = case.given(DType::I32, [used + 2, tokens, 1, 1], all);
            let nb = case.graph.tensor(all).nb();
            let ids = case.graph.view(all, [used, tokens, 1, 1], nb, 0).unwrap();
            let y = case.graph.mul_mat_id(a, b, ids).unwrap();
            let what = format!("mul_mat_id {k}x{m} {dtype} of {experts}, {used} by {tokens}");
            case.check_each(&what, y, 1e-11, |[i, slot, token, _]| {
                let id = case.at(ids, [slot, token, 0, 0]);
                if id < 0.0 || id >= experts as f64 {
                    return 0.0;
                }
                let column = if shared { 0 } else { slot };
                (0..k).map(|l| case.at(a, [l, i, id as usize, 0]) * case.at(b, [l, column, token, 0])).sum()
            });
        }
    }
}

const ROPE: Rope = Rope {
    n_dims: 0,
    mode: RopeMode::Normal,
    n_ctx_orig: 128,
    freq_base: 10000.0,
    freq_scale: 1.0,
    ext_factor: 0.0,
    attn_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
};

/// What one element of a turned row is, in f64.
fn turned(case: &Case, [x, positions]: [TensorId; 2], factors: Option<TensorId>, rope: &Rope, at: [usize; 4]) -> f64 {
    let [i, i1, i2, i3] = at;
    let (n, half) = (rope.n_dims as usize, rope.n_dims as usize / 2);
    if i >= n {
        return case.at(x, at);
    }
    let (pair, second, other) = match rope.mode {
        RopeMode::Normal => (i / 2, i % 2 == 1, i ^ 1),
        RopeMode::Neox => (i % half, i >= half, (i + half) % n),
    };
    let base = f64::from(rope.freq_base);
    let factor = factors.map_or(1.0, |factors| case.at(factors, [pair, 0, 0, 0]));
    let angle = case.at(positions, [i2, 0, 0, 0]) * base.powf(-2.0 * pair as f64 / n as f64) / factor;
    let scale = f64::from(rope.freq_scale);
    let (mut theta, mut magnitude) = (scale * angle, f64::from(rope.attn_factor));
    if rope.ext_factor != 0.0 {
        let pair_that_turns = |times: f32| {
            let wavelength = f64::from(rope.n_ctx_orig) / (f64::from(times) * std::f64::consts::TAU);
            n as f64 * wavelength.ln() / (2.0 * base.ln())
        };
        let start = pair_that_turns(rope.beta_fast).floor().max(0.0);
        let end = pair_that_turns(rope.beta_slow).ceil().min(n as f64 - 1.0);
        let ramp = 1.0 - ((pair as f64 - start) / (end - start).max(0.001)).clamp(0.0, 1.0);
        let ramp = ramp * f64::from(rope.ext_factor);
        theta = scale * angle * (1.0 - ramp) + angle * ramp;
        magnitude *= 1.0 + 0.1 * (1.0 / scale).ln();
    }
    let sign = if second { 1.0 } else { -1.0 };
    magnitude * (case.at(x, at) * theta.cos() + sign * case.at(x, [other, i1, i2, i3]) * theta.sin())
}

#[test]
fn ropes() {
    for (d, n_dims) in [(2, 2), (64, 64), (80, 32), (21, 20), (512, 512)] {
        for (dtype, lay, limit) in [
            (F32, Lay::Padded, 1e-11),
            (F32, Lay::Permuted, 1e-11),
            (DType::F16, Lay::Padded, 2e-7),
            (DType::BF16, Lay::Dense, 1e-5),
        ] {
            for (mode, factors, yarn, freq_scale) in [
                (RopeMode::Normal, false, false, 1.0),
                (RopeMode::Neox, false, false, 0.3),
                (RopeMode::Neox, true, false, 1.0),
                (RopeMode::Normal, true, true, 0.25),
                (RopeMode::Neox, false, true, 0.125),
            ] {
                let mut case = Case::new(d as u64);
                let tokens = 7;
                let x = case.laid(INPUT, dtype, [d, 3, tokens, 2], lay);
                let positions = vec![0.0, 1.0, 2.0, 255.0, 256.0, 100.0, 31.0];
                let positions = case.given(DType::I32, [tokens, 1, 1, 1], positions);
                let factors = factors.then(|| case.leaf(WEIGHT, F32, [n_dims / 2, 1, 1, 1], |v| v.abs() * 4.0 + 0.5));
                let (ext_factor, attn_factor) = if yarn { (0.75, 1.1) } else { (0.0, 1.0) };
                let n_dims = n_dims as u32;
                let rope = Rope { n_dims, mode, freq_scale, ext_factor, attn_factor, ..ROPE };
                let y = case.graph.rope(x, positions, factors, rope).unwrap();
                let what = format!("rope {dtype} {n_dims} of {d} {lay:?} {mode:?} {factors:?} {yarn}");
                case.check_each(&what, y, limit, |at| turned(&case, [x, positions], factors, &rope, at));
            }
        }
    }
}

#[test]
fn single_angles_are_right_to_1e_5() {
    for (position, limit) in [(255, 4e-6), (4095, 3e-5), (131_071, 1e-3), (-3, 1e-6)] {
        let mut case = Case::new(1);
        let x = case.given(F32, [128, 1, 1, 1], (0..128).map(|i| f64::from(1 - i % 2)).collect());
        let positions = case.given(DType::I32, [1, 1, 1, 1], vec![f64::from(position)]);
        let rope = Rope { n_dims: 128, ..ROPE };
        let y = case.graph.rope(x, positions, None, rope).unwrap();
        for (label, device) in DEVICES.iter() {
            let found = case.run(device, &[y], &[]).remove(0);
            let error = |(i, y): (usize, &f64)| (y - turned(&case, [x, positions], None, &rope, [i, 0, 0, 0])).abs();
            let worst = found.iter().enumerate().map(error).fold(0.0, f64::max);
            assert!(worst <= limit, "{label}: position {position}: {worst:e}");
            report(label, &format!("largest error of a cosine or sine at {position}"), worst);
        }
    }
}

#[test]
fn attentions() {
    struct Shape {
        d: [usize; 2],
        tokens: usize,
        heads: [usize; 2],
        batch: [usize; 2],
        keys: usize,
    }
    let shape = |d, tokens, heads, batch, keys| Shape { d, tokens, heads, batch, keys };
    let shapes = [
        shape([4, 4], 1, [1, 1], [1, 1], 1),
        shape([64, 64], 1, [6, 2], [2, 1], 33),
        shape([40, 24], 3, [4, 4], [1, 1], 70),
        shape([128, 128], 5, [8, 2], [2, 2], 300),
        shape([80, 80], 9, [3, 1], [1, 1], 129),
        shape([576, 512], 2, [4, 1], [1, 1], 40),
        shape([72, 200], 4, [2, 2], [1, 1], 600),
    ];
    for Shape { d: [d, dv], tokens, heads: [heads, kv_heads], batch: [batch, kv_batch], keys } in shapes {
        for (dtype, kind, lay, mask, sinks, cap, max_bias) in [
            (F32, INPUT, Lay::Dense, false, false, 0.0, 0.0),
            (F32, LeafKind::Cache, Lay::Permuted, true, false, 0.0, 0.0),
            (DType::F16, LeafKind::Cache, Lay::Permuted, true, true, 0.0, 8.0),
            (DType::F16, LeafKind::Cache, Lay::Padded, true, false, 2.0, 0.0),
            (DType::BF16, LeafKind::Cache, Lay::Padded, false, true, 0.0, 0.0),
        ] {
            let mut case = Case::new((d + keys) as u64);
            let q = case.laid(INPUT, F32, [d, tokens, heads, batch], Lay::Permuted);
            let k = case.laid(kind, dtype, [d, keys, kv_heads, kv_batch], lay);
            let v = case.laid(kind, dtype, [dv, keys, kv_heads, kv_batch], lay);
            let mask_ne = [keys, tokens + 1, if sinks { heads } else { 1 }, batch];
            let mask = mask.then(|| mask_of(&mut case, DType::F16, mask_ne));
            let sinks = sinks.then(|| case.leaf(WEIGHT, F32, [heads, 1, 1, 1], |v| v));
            let attn = FlashAttn { scale: 0.7, max_bias, logit_softcap: cap, precision: Precision::F32 };
            let y = case.graph.flash_attn([q, k, v], mask, sinks, attn).unwrap();
            let (shared, repeat) = (heads / kv_heads, batch / kv_batch);
            let weights = |head: usize, token: usize, b: usize| -> Vec<f64> {
                let logit = |key: usize| {
                    let dot = |i| case.at(q, [i, token, head, b]) * case.at(k, [i, key, head / shared, b / repeat]);
                    let mut logit = (0..d).map(dot).sum::<f64>() * f64::from(attn.scale);
                    if cap != 0.0 {
                        logit = f64::from(cap) * (logit / f64::from(cap)).tanh();
                    }
                    let slope = slope(max_bias.into(), head, heads);
                    mask.map_or(logit, |mask| logit + slope * case.at(mask, [key, token, head % mask_ne[2], b]))
                };
                let exps: Vec<f64> = (0..keys).map(|key| logit(key).exp()).collect();
                let sink = sinks.map_or(0.0, |sinks| case.at(sinks, [head, 0, 0, 0]).exp());
                let sum = exps.iter().sum::<f64>() + sink;
                exps.into_iter().map(|e| if sum == 0.0 { 0.0 } else { e / sum }).collect()
            };
            let all: Vec<Vec<f64>> = (0..batch * tokens * heads)
                .map(|i| weights(i % heads, i / heads % tokens, i / (heads * tokens)))
                .collect();
            let what = format!(
                "attention {d}/{dv} {tokens} tokens {heads}/{kv_heads} heads {keys} {dtype} {lay:?} mask {mask:?} sinks {sinks:?} cap {cap}"
            );
            case.check_each(&what, y, 1e-11, |[i, head, token, b]| {
                let weights = &all[(b * tokens + token) * heads + head];
                (0..keys).map(|key| weights[key] * case.at(v, [i, key, head / shared, b / repeat])).sum()
            });
        }
    }
}

#[test]
fn fully_masked_rows_give_zeros() {
    let mut case = Case::new(1);
    let q = case.input(F32, [32, 6, 2, 1]);
    let k = case.input(DType::F16, [32, 200, 2, 1]);
    let mask = case.given(DType::F16, [200, 6, 1, 1], vec![f64::NEG_INFINITY; 1200]);
    let attn = FlashAttn { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::Default };
    let y = case.graph.flash_attn([q, k, k], Some(mask), None, attn).unwrap();
    case.check_each("attention, all masked", y, 0.0, |_| 0.0);
}

/// What a cache holds in masked cells does not matter.
#[test]
fn masked_cells_are_not_read() {
    let mut case = Case::new(1);
    let (keys, tokens) = (150, 3);
    let q = case.input(F32, [32, tokens, 2, 1]);
    let k = case.input(DType::F16, [32, keys, 1, 1]);
    let v = case.input(DType::F16, [32, keys, 1, 1]);
    let x = case.input(F32, [keys, tokens, 1, 1]);
    let hidden = |key: usize| key % 5 == 2 || key > 130;
    let mask = indices([keys, tokens, 1, 1]).map(|[key, ..]| if hidden(key) { f64::NEG_INFINITY } else { 0.0 });
    let mask = case.given(DType::F16, [keys, tokens, 1, 1], mask.collect());
    let attn = FlashAttn { scale: 0.5, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::Default };
    let attended = case.graph.flash_attn([q, k, v], Some(mask), None, attn).unwrap();
    let soft_max = case.graph.soft_max(x, Some(mask), None, 1.0, 0.0).unwrap();
    for (label, device) in DEVICES.iter() {
        let expected = case.run(device, &[attended, soft_max], &[]);
        let mut other = Case { graph: case.graph.clone(), values: case.values.clone(), random: 0 };
        for (id, width) in [(k, 32), (v, 32), (x, 1)] {
            for (i, value) in other.values.get_mut(&id).unwrap().iter_mut().enumerate() {
                if hidden(i / width % keys) {
                    *value = f64::NAN;
                }
            }
        }
        assert!(other.run(device, &[attended, soft_max], &[]) == expected, "{label}");
        assert!(expected.iter().flatten().all(|value| value.is_finite()), "{label}");
    }
}

/// Sums over nothing are zero.
#[test]
fn nothing_to_sum_up_gives_zeros() {
    let mut case = Case::new(1);
    let q = case.input(F32, [32, 6, 2, 1]);
    let k = case.input(DType::F16, [32, 0, 2, 1]);
    let attn = FlashAttn { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::Default };
    let y = case.graph.flash_attn([q, k, k], None, None, attn).unwrap();
    case.check_each("attention over no keys", y, 0.0, |_| 0.0);
    for n in [1, 9] {
        let a = case.input(DType::F16, [0, 5, 1, 1]);
        let b = case.input(F32, [0, n, 1, 1]);
        let y = case.graph.mul_mat(a, b).unwrap();
        case.check_each("mul_mat over no elements", y, 0.0, |_| 0.0);
    }
}

/// More workgroups than one dimension of a grid has, so that the grid is rounded up.
#[test]
fn more_rows_than_a_grid_is_wide() {
    let mut case = Case::new(1);
    let x = case.input(F32, [2, 70_001, 1, 1]);
    let w = case.input(F32, [3, 280_001, 1, 1]);
    let b = case.input(F32, [3, 1, 1, 1]);
    let norm = case.graph.norm(x, 1e-5).unwrap();
    let soft_max = case.graph.soft_max(x, None, None, 1.0, 0.0).unwrap();
    let sorted = case.graph.argsort(x, SortOrder::Descending).unwrap();
    let product = case.graph.mul_mat(w, b).unwrap();
    // Here a variance can be as small as eps, and a norm as inexact as its mean.
    case.check("norm of many rows", norm, 1e-9, normalised(&case, x, true, f64::from(1e-5f32)));
    case.check_each("soft_max of many rows", soft_max, 1e-11, |[i, row, _, _]| {
        let sum: f64 = (0..2).map(|j| case.at(x, [j, row, 0, 0]).exp()).sum();
        case.at(x, [i, row, 0, 0]).exp() / sum
    });
    case.check_each("argsort of many rows", sorted, 0.0, |[i, row, _, _]| {
        let first = case.at(x, [0, row, 0, 0]) < case.at(x, [1, row, 0, 0]);
        if (i == 1) == first { 0.0 } else { 1.0 }
    });
    case.check_each("mul_mat of many rows", product, 1e-11, |[i, _, _, _]| {
        (0..3).map(|l| case.at(w, [l, i, 0, 0]) * case.at(b, [l, 0, 0, 0])).sum()
    });
}

/// What no kernel computes is an error, and says so.
#[test]
fn unsupported_shapes_are_refused() {
    let mut case = Case::new(1);
    let x = case.input(F32, [6, 1, 1, 1]);
    let state = case.input(F32, [6, 6, 1, 1]);
    let one = case.input(F32, [1, 1, 1, 1]);
    let positions = case.given(DType::I32, [1, 1, 1, 1], vec![1.0]);
    let long = case.input(F32, [20_000, 1, 1, 1]);
    let attn = FlashAttn { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::Default };
    let rope = Rope { n_dims: 6, freq_base: 0.5, ..ROPE };
    for node in [
        case.graph.gated_delta_net([x, x, x, one, one, state], 1).unwrap(),
        case.graph.rope(x, positions, None, rope).unwrap(),
        case.graph.flash_attn([long, long, long], None, None, attn).unwrap(),
    ] {
        let mut graph = case.graph.clone();
        graph.expand(node).unwrap();
        for (label, device) in DEVICES.iter() {
            let plan = plan(&graph, &Leaves::new(), &device.limits(), &unfused()).unwrap();
            let error = device.encode(&graph, &plan).unwrap_err();
            let op = graph.tensor(node).kind();
            assert!(matches!(&error, DeviceError::Unsupported { op: found, .. } if *found == op), "{label}: {error}");
        }
    }
}

#[test]
fn convolutions() {
    for (width, channels, tokens, sequences) in [(1, 1, 1, 1), (4, 33, 1, 2), (4, 100, 17, 3), (3, 7, 200, 1)] {
        for lay in [Lay::Dense, Lay::Padded] {
            let mut case = Case::new(channels as u64);
            let x = case.laid(INPUT, F32, [width - 1 + tokens, channels, sequences, 1], lay);
            let c = case.leaf(WEIGHT, F32, [width, channels, 1, 1], |v| v);
            let y = case.graph.ssm_conv(x, c).unwrap();
            case.check_each(&format!("ssm_conv {width} {channels} {tokens} {sequences}"), y, 1e-12, |[ch, t, s, _]| {
                (0..width).map(|i| case.at(x, [t + i, ch, s, 0]) * case.at(c, [i, ch, 0, 0])).sum()
            });
        }
    }
}

/// A delta net and the copy of its snapshots into a larger cache.
struct Net {
    case: Case,
    size: usize,
    heads: usize,
    tokens: usize,
    batch: usize,
    sources: [TensorId; 6],
    net: TensorId,
    copy: TensorId,
    cache: TensorId,
}

impl Net {
    fn new([size, key_heads, heads]: [usize; 3], [tokens, batch, snapshots]: [usize; 3], per_channel: bool) -> Self {
        let mut case = Case::new((size + tokens) as u64);
        let q = case.laid(INPUT, F32, [size, key_heads, tokens, batch], Lay::Padded);
        let k = case.laid(INPUT, F32, [size, key_heads, tokens, batch], Lay::Permuted);
        let v = case.laid(INPUT, F32, [size, heads, tokens, batch], Lay::Padded);
        // Keys have length one, gates decay, and beta is a probability.
        let root = case.graph.root(k);
        for key in case.values.get_mut(&root).unwrap().chunks_mut(size) {
            let length = key.iter().map(|v| v * v).sum::<f64>().sqrt();
            key.iter_mut().for_each(|v| *v = rounded(F32, *v / length));
        }
        let gate_size = if per_channel { size } else { 1 };
        let g = case.leaf(INPUT, F32, [gate_size, heads, tokens, batch], |v| -0.5 * (v + 1.0));
        let beta = case.leaf(INPUT, F32, [1, heads, tokens, batch], |v| 0.5 * (v + 1.0));
        let state = case.leaf(INPUT, F32, [size, size, heads, batch], |v| v);
        let sources = [q, k, v, g, beta, state];
        let net = case.graph.gated_delta_net(sources, snapshots as u32).unwrap();
        let (d, slots) = (size * size * heads, tokens.min(snapshots));
        let (attention, state_bytes) = (4 * size * heads * tokens * batch, 4 * d * batch);
        let nb = [4, 4 * d, state_bytes, state_bytes * slots];
        let tail = case.graph.view(net, [d, batch, slots, 1], nb, attention).unwrap();
        // A cache with room for other cells before and after, and slots further apart than they need to be.
        let cache = case.leaf(LeafKind::Cache, F32, [d, batch + 3, snapshots + 1, 1], |v| v);
        let to = case.graph.tensor(cache).nb();
        let cells = case.graph.view(cache, [d, batch, slots, 1], to, to[1]).unwrap();
        let copy = case.graph.cpy(tail, cells).unwrap();
        Self { case, size, heads, tokens, batch, sources, net, copy, cache }
    }

    /// The attention rows, and the states after each token, newest first.
    fn expected(&self) -> (Vec<f64>, Vec<Vec<f64>>) {
        let Self { case, size, heads, tokens, batch, sources: [q, k, v, g, beta, state], .. } = self;
        let (size, heads) = (*size, *heads);
        let key_heads = case.graph.tensor(*q).ne()[1];
        let per_channel = case.graph.tensor(*g).ne()[0] != 1;
        let mut m = case.values[state].clone();
        let mut rows = vec![0.0; size * heads * tokens * batch];
        let mut states = Vec::new();
        for t in 0..*tokens {
            for (b, h) in (0..*batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
                for i in 0..size {
                    let row = &mut m[((b * heads + h) * size + i) * size..][..size];
                    let channel = |id, j| case.at(id, [j, h % key_heads, t, b]);
                    for (j, value) in row.iter_mut().enumerate() {
                        *value *= case.at(*g, [if per_channel { j } else { 0 }, h, t, b]).exp();
                    }
                    let known: f64 = row.iter().enumerate().map(|(j, value)| value * channel(*k, j)).sum();
                    let delta = (case.at(*v, [i, h, t, b]) - known) * case.at(*beta, [0, h, t, b]);
                    for (j, value) in row.iter_mut().enumerate() {
                        *value += channel(*k, j) * delta;
                    }
                    let out: f64 = row.iter().enumerate().map(|(j, value)| value * channel(*q, j)).sum();
                    rows[((b * tokens + t) * heads + h) * size + i] = out / (size as f64).sqrt();
                }
            }
            states.insert(0, m.clone());
        }
        (rows, states)
    }

    /// The cache after the copy.
    fn expected_cache(&self, states: &[Vec<f64>]) -> Vec<f64> {
        let [d, cells, slots, _] = self.case.graph.tensor(self.cache).ne();
        let mut cache = self.case.values[&self.cache].clone();
        for (slot, state) in states.iter().take(slots - 1).enumerate() {
            let start = (slot * cells + 1) * d;
            cache[start..start + state.len()].copy_from_slice(state);
        }
        cache
    }
}

#[test]
fn delta_nets() {
    for (heads, times) in [
        ([4, 1, 1], [2, 1, 1]),
        ([16, 2, 4], [3, 2, 2]),
        ([24, 1, 3], [5, 1, 2]),
        ([32, 2, 2], [1, 2, 4]),
        ([64, 2, 6], [8, 2, 4]),
        ([128, 1, 2], [4, 1, 1]),
        ([256, 1, 1], [3, 1, 2]),
        ([36, 1, 2], [70, 1, 3]),
    ] {
        for per_channel in [false, true] {
            let net = Net::new(heads, times, per_channel);
            let (rows, states) = net.expected();
            let written: Vec<f64> = rows.iter().copied().chain(states.into_iter().take(times[2]).flatten()).collect();
            for (label, device) in DEVICES.iter() {
                let found = net.case.run(device, &[net.net], &[]).remove(0);
                let error = nmse(&written, &found[..written.len()]);
                let what = format!("gated_delta_net {heads:?} {times:?} {per_channel}");
                assert!(error <= 1e-12, "{label}: {what}: NMSE {error:e}");
                assert!(found[written.len()..].iter().all(|v| v.is_nan()), "{label}: {what}: wrote older snapshots");
                report(label, &what, error);
            }
        }
    }
}

#[test]
fn delta_nets_write_through() {
    let fusion = row_of_table(&[OpKind::GatedDeltaNet, OpKind::Cpy]);
    for (size, per_channel) in [(32, false), (32, true), (64, false), (64, true), (128, false), (128, true)] {
        // Tokens 1, 2, 4, 8; sequences 1, 2; snapshots 1, 2, 4.
        for times in indices([4, 2, 3, 1]).map(|[t, b, k, _]| [1 << t, b + 1, 1 << k]) {
            let net = Net::new([size, 1, 2], times, per_channel);
            let (rows, states) = net.expected();
            let cache = net.expected_cache(&states);
            let group = Group { fusion, nodes: vec![net.net, net.copy] };
            for (label, device) in DEVICES.iter() {
                let results = [net.copy, net.net, net.cache];
                let fused = net.case.run(device, &results, std::slice::from_ref(&group));
                let unfused = net.case.run(device, &results, &[]);
                let what = format!("{size} {times:?} {per_channel}");
                let errors = [nmse(&rows, &fused[1][..rows.len()]), nmse(&cache, &fused[2])];
                assert!(errors.iter().all(|&e| e <= 1e-12), "{label}: {what}: NMSE {errors:?}");
                assert!(fused[2] == unfused[2], "{label}: {what}: the fused cache differs");
                assert!(fused[1][..rows.len()] == unfused[1][..rows.len()], "{label}: {what}: the fused rows differ");
                assert!(fused[1][rows.len()..].iter().all(|v| v.is_nan()), "{label}: {what}: the tail was written");
                report(label, &format!("write-through {what}"), errors[0].max(errors[1]));
            }
        }
    }
}
