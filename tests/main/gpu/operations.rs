//! Operations over types, shapes, strides, views and broadcasts.

use super::{Case, Coords, coords, decode, devices, encode};
use half::f16;
use wgfuse::device::Device;
use wgfuse::fusion::{FusionId, TABLE};
use wgfuse::graph::{DType, Glu, LeafKind, Op, OpKind, TensorId, Unary};
use wgfuse::plan::Group;

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Ways to look at a tensor of shape `ne`.
#[derive(Clone, Copy, Debug)]
enum Look {
    Dense,
    /// The first two axes exchanged.
    Transposed,
    /// The outer axes turned round.
    Permuted,
    /// A window with gaps after every row and plane, not at the start.
    Window,
}

const LOOKS: [Look; 4] = [Look::Dense, Look::Transposed, Look::Permuted, Look::Window];

impl Case {
    /// A tensor of shape `ne` that lies in memory as told.
    fn look(&mut self, look: Look, kind: LeafKind, dtype: DType, ne: Coords) -> TensorId {
        let [a, b, c, d] = ne;
        match if ne.contains(&0) { Look::Dense } else { look } {
            Look::Dense => self.leaf(kind, dtype, ne),
            Look::Transposed => {
                let leaf = self.leaf(kind, dtype, [b, a, c, d]);
                self.graph.transpose(leaf).unwrap()
            }
            Look::Permuted => {
                let leaf = self.leaf(kind, dtype, [a, d, b, c]);
                self.graph.permute(leaf, [0, 3, 1, 2]).unwrap()
            }
            Look::Window => {
                let leaf = self.leaf(kind, dtype, [a + 3, b + 1, c, d + 1]);
                let nb = self.graph.tensor(leaf).nb();
                self.graph.view(leaf, ne, nb, nb[3] + nb[1] + nb[0]).unwrap()
            }
        }
    }
}

fn round(dtype: DType, x: f64) -> f64 {
    decode(dtype, &encode(dtype, x))
}

#[test]
fn arithmetic() {
    type Row = (Op, fn(f64, f64) -> f64);
    let rows: [Row; 4] =
        [(Op::Add, |a, b| a + b), (Op::Sub, |a, b| a - b), (Op::Mul, |a, b| a * b), (Op::Div, |a, b| a / b)];
    let shapes = [
        ([7, 3, 2, 2], [7, 3, 2, 2]),
        ([65, 5, 2, 3], [65, 1, 1, 1]),
        ([6, 4, 2, 2], [3, 2, 1, 2]),
        ([5, 4, 3, 2], [1, 4, 1, 2]),
        ([3, 1, 1, 1], [1, 1, 1, 1]),
    ];
    for (index, (ne, of)) in shapes.into_iter().enumerate() {
        for (step, (dtype, look)) in FLOATS.into_iter().flat_map(|d| LOOKS.map(|l| (d, l))).enumerate() {
            let (op, f) = rows[(index + step) % 4];
            let other = FLOATS[(step + index) % 3];
            let mut case = Case::default();
            let a = case.look(look, LeafKind::Input, dtype, ne);
            let b = case.look(LOOKS[(step + 1) % 4], LeafKind::Weight, other, of);
            let node = case.graph.push(op, &[Some(a), Some(b)]).unwrap();
            let what = format!("{} {look:?} {dtype} {ne:?} by {other} {of:?}", op.kind());
            case.check(&what, node, |case, c| {
                let d = [0, 1, 2, 3].map(|dim| c[dim] % of[dim]);
                f(case.at(a, c), case.at(b, d))
            });
        }
    }
}

#[test]
fn arithmetic_on_itself() {
    let mut case = Case::default();
    let a = case.input(DType::F32, [33, 2, 1, 1]);
    let node = case.graph.mul(a, a).unwrap();
    case.check("MUL of a tensor and itself", node, |case, c| case.at(a, c) * case.at(a, c));
}

fn reference(unary: Unary, x: f64) -> f64 {
    match unary {
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Gelu => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            // Beyond the range of exp, so that the reference itself is no NaN.
            0.5 * x * (1.0 + u.clamp(-300.0, 300.0).tanh())
        }
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
    }
}

const UNARY: [Unary; 5] = [Unary::Tanh, Unary::Sigmoid, Unary::Gelu, Unary::Silu, Unary::Softplus];

#[test]
fn functions() {
    for (dtype, look) in FLOATS.into_iter().flat_map(|d| LOOKS.map(|l| (d, l))) {
        for unary in UNARY {
            let mut case = Case::default();
            let a = case.look(look, LeafKind::Input, dtype, [5, 3, 2, 3]);
            let node = case.graph.unary(a, unary).unwrap();
            case.check(&format!("{unary:?} {look:?} {dtype}"), node, |case, c| reference(unary, case.at(a, c)));
        }
        for (op, f) in [(Op::Sqr, (|x| x * x) as fn(f64) -> f64), (Op::Sin, f64::sin)] {
            let mut case = Case::default();
            let a = case.look(look, LeafKind::Cache, dtype, [70, 3, 2, 1]);
            let node = case.graph.push(op, &[Some(a)]).unwrap();
            case.check(&format!("{op:?} {look:?} {dtype}"), node, |case, c| f(case.at(a, c)));
        }
    }
}

#[test]
fn functions_of_large_arguments() {
    let values: Vec<f64> =
        [0.0, 1e-6, 3.0, 9.9, 10.1, 13.0, 14.5, 19.9, 20.1, 45.0, 88.0, 90.0, 200.0, 1e5, 1e19, 3e38]
            .into_iter()
            .flat_map(|x| [x, -x])
            .collect();
    let ne = [values.len(), 1, 1, 1];
    for unary in UNARY {
        let mut case = Case::default();
        let a = case.leaf_of(LeafKind::Input, DType::F32, ne, &values);
        let node = case.graph.unary(a, unary).unwrap();
        case.check(&format!("{unary:?}"), node, |case, c| reference(unary, case.at(a, c)));
    }
    let angles: Vec<f64> = (0..400).map(|i| round(DType::F32, (f64::from(i) - 200.0) * 47.123)).collect();
    let mut case = Case::default();
    let a = case.leaf_of(LeafKind::Input, DType::F32, [angles.len(), 1, 1, 1], &angles);
    let node = case.graph.sin(a).unwrap();
    case.check("SIN", node, |case, c| case.at(a, c).sin());
}

#[test]
fn scale_and_clamp() {
    for look in LOOKS {
        let mut case = Case::default();
        let a = case.look(look, LeafKind::Input, DType::F32, [9, 4, 3, 2]);
        let node = case.graph.scale(a, -1.5, 0.25).unwrap();
        case.check(&format!("SCALE {look:?}"), node, |case, c| case.at(a, c) * -1.5 + 0.25);

        let mut case = Case::default();
        let a = case.look(look, LeafKind::Cache, DType::F32, [9, 4, 3, 2]);
        let node = case.graph.scale_in_place(a, 2.0, 1.0).unwrap();
        case.check(&format!("SCALE in place {look:?}"), node, |case, c| case.at(a, c) * 2.0 + 1.0);

        for (min, max) in [(-0.5, 1.0), (f32::NEG_INFINITY, 0.25), (0.0, f32::INFINITY), (1.0, -1.0)] {
            let mut case = Case::default();
            let a = case.look(look, LeafKind::Input, DType::F32, [9, 4, 3, 2]);
            let node = case.graph.clamp(a, min, max).unwrap();
            let expected = |case: &Case, c| case.at(a, c).min(max.into()).max(min.into());
            case.check(&format!("CLAMP {min} {max} {look:?}"), node, expected);
        }
    }
}

#[test]
fn scale_in_place_leaves_the_rest_alone() {
    let mut case = Case::default();
    let root = case.leaf(LeafKind::Cache, DType::F32, [10, 4, 1, 1]);
    let window = case.graph.view(root, [4, 2, 1, 1], case.graph.tensor(root).nb(), 40 + 8).unwrap();
    let node = case.graph.scale_in_place(window, 3.0, 0.0).unwrap();
    case.graph.expand(node).unwrap();
    for device in devices() {
        let results = case.run(device, None).unwrap();
        for c in coords([10, 4, 1, 1]) {
            let inside = (2..6).contains(&c[0]) && (1..3).contains(&c[1]);
            let factor = if inside { 3.0 } else { 1.0 };
            let result = super::element(&case.graph, root, &results[&root], c);
            assert_eq!(result, round(DType::F32, case.at(root, c) * factor), "{} at {c:?}", device.info().name);
        }
    }
}

#[test]
fn gated_units() {
    for (glu, unary) in [(Glu::Geglu, Unary::Gelu), (Glu::Swiglu, Unary::Silu)] {
        for (dtype, look) in
            FLOATS.into_iter().flat_map(|d| [Look::Dense, Look::Permuted, Look::Window].map(|l| (d, l)))
        {
            let mut case = Case::default();
            let a = case.look(look, LeafKind::Input, dtype, [9, 3, 2, 2]);
            let b = case.look(Look::Window, LeafKind::Input, dtype, [9, 3, 2, 2]);
            let node = case.graph.glu(a, b, glu).unwrap();
            let expected = |case: &Case, c| reference(unary, case.at(a, c)) * case.at(b, c);
            case.check(&format!("{glu:?} {look:?} {dtype}"), node, expected);
            for swapped in [false, true] {
                let mut case = Case::default();
                let a = case.look(look, LeafKind::Input, dtype, [10, 3, 2, 2]);
                let node = case.graph.glu_halves(a, glu, swapped).unwrap();
                case.check(&format!("{glu:?} halves {swapped} {look:?} {dtype}"), node, |case, c| {
                    let [first, second] = [c[0], c[0] + 5].map(|x| case.at(a, [x, c[1], c[2], c[3]]));
                    let (x, gate) = if swapped { (second, first) } else { (first, second) };
                    reference(unary, x) * gate
                });
            }
        }
    }
}

/// The row of the table for these operations.
fn fused(case: &Case, nodes: &[TensorId]) -> Group {
    let kinds: Vec<OpKind> = nodes.iter().map(|&id| case.graph.tensor(id).kind()).collect();
    let fusion = TABLE.iter().find(|row| row.ops == kinds).expect("a row of the table");
    Group { fusion: Some(fusion), nodes: nodes.to_vec() }
}

#[test]
fn add_chains() {
    let ne = [6, 4, 3, 2];
    for (count, of, look) in [
        (2, ne, Look::Dense),
        (3, [6, 1, 1, 1], Look::Dense),
        (4, [3, 2, 3, 1], Look::Dense),
        (5, ne, Look::Window),
        (6, ne, Look::Permuted),
        (7, ne, Look::Dense),
        (7, [1, 4, 1, 2], Look::Window),
    ] {
        for (kind, one_buffer) in [(LeafKind::Weight, true), (LeafKind::Weight, false), (LeafKind::Input, false)] {
            for dtype in FLOATS {
                let mut case = Case { one_buffer, ..Case::default() };
                let start = case.look(look, LeafKind::Input, DType::F32, ne);
                let addends: Vec<_> = (0..count).map(|_| case.look(look, kind, dtype, of)).collect();
                // The first addend is not the one that lies first in memory.
                let order: Vec<_> = addends.iter().rev().copied().collect();
                let mut nodes = Vec::new();
                for &addend in &order {
                    let last = nodes.last().copied().unwrap_or(start);
                    nodes.push(case.graph.add(last, addend).unwrap());
                }
                addends.iter().chain(nodes.last()).for_each(|&id| case.graph.expand(id).unwrap());
                let group = fused(&case, &nodes);
                assert_eq!(group.fusion.map(|f| f.id), Some(FusionId::AddChain));
                let expected = |case: &Case, c: Coords| {
                    let d = [0, 1, 2, 3].map(|dim| c[dim] % of[dim]);
                    case.at(start, c) + order.iter().map(|&id| case.at(id, d)).sum::<f64>()
                };
                let what = format!("chain of {count} {dtype} {of:?} {look:?} {kind:?} {one_buffer}");
                case.check_groups(&what, nodes[count - 1], Some(&[group]), expected);
            }
        }
    }
}

#[test]
fn a_chain_in_one_buffer_needs_three_bindings() {
    let mut case = Case { one_buffer: true, ..Case::default() };
    let start = case.input(DType::F32, [8, 2, 1, 1]);
    let mut nodes = Vec::new();
    for _ in 0..7 {
        let addend = case.leaf(LeafKind::Weight, DType::F32, [8, 1, 1, 1]);
        nodes.push(case.graph.add(nodes.last().copied().unwrap_or(start), addend).unwrap());
    }
    case.graph.expand(nodes[6]).unwrap();
    for device in devices() {
        let loaded = super::Loaded::new(&case, device, Some(&[fused(&case, &nodes)])).unwrap();
        let dispatches = device.encode(&case.graph, &loaded.plan).unwrap();
        assert_eq!(dispatches.len(), 1);
        assert_eq!(dispatches[0].bindings.len(), 3, "{}", dispatches[0]);
    }
}

#[test]
fn snakes() {
    for dtype in FLOATS {
        for turned in [false, true] {
            let mut case = Case::default();
            // Rows of one let either operand be the first.
            let (row, channels) = if turned { (1, 9) } else { (33, 5) };
            let x = case.input(dtype, [row, channels, 1, 1]);
            let a = case.leaf(LeafKind::Weight, if turned { dtype } else { DType::F32 }, [1, channels, 1, 1]);
            let inv_b = case.leaf(LeafKind::Weight, if turned { dtype } else { DType::F32 }, [1, channels, 1, 1]);
            let graph = &mut case.graph;
            let scaled = if turned { graph.mul(a, x) } else { graph.mul(x, a) }.unwrap();
            let sine = graph.sin(scaled).unwrap();
            let square = graph.sqr(sine).unwrap();
            let damped = if turned { graph.mul(inv_b, square) } else { graph.mul(square, inv_b) }.unwrap();
            let sum = if turned { graph.add(x, damped) } else { graph.add(damped, x) }.unwrap();
            graph.expand(sum).unwrap();
            let group = fused(&case, &[scaled, sine, square, damped, sum]);
            assert_eq!(group.fusion.map(|f| f.id), Some(FusionId::Snake));
            let expected = |case: &Case, c: Coords| {
                let (x, factor) = (case.at(x, c), |id| case.at(id, [0, c[1], 0, 0]));
                x + (factor(a) * x).sin().powi(2) * factor(inv_b)
            };
            case.check_groups(&format!("snake {dtype} {turned}"), sum, Some(&[group]), expected);
            // One by one, every intermediate is rounded to its type.
            if dtype == DType::F32 {
                case.check_groups(&format!("snake unfused {turned}"), sum, None, expected);
            }
        }
    }
}

#[test]
fn get_rows() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
        for look in [Look::Dense, Look::Permuted, Look::Window] {
            let mut case = Case::default();
            let a = case.look(look, LeafKind::Weight, dtype, [7, 5, 2, 3]);
            let picks: Vec<f64> = (0..4 * 2 * 3).map(|i| f64::from(i * 3 % 5)).collect();
            let ids = case.leaf_of(LeafKind::Input, DType::I32, [4, 2, 3, 1], &picks);
            let node = case.graph.get_rows(a, ids).unwrap();
            case.check(&format!("GET_ROWS {look:?} {dtype}"), node, |case, c| {
                case.at(a, [c[0], case.at(ids, [c[1], c[2], c[3], 0]) as usize, c[2], c[3]])
            });
        }
    }
}

#[test]
fn get_rows_out_of_range_gives_zeros() {
    for dtype in [DType::F32, DType::I32] {
        let mut case = Case::default();
        let a = case.leaf_of(LeafKind::Weight, dtype, [2, 3, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let ids = [2.0, 3.0, -1.0, 2147483647.0, -2147483648.0];
        let ids = case.leaf_of(LeafKind::Input, DType::I32, [5, 1, 1, 1], &ids);
        let node = case.graph.get_rows(a, ids).unwrap();
        case.check("GET_ROWS", node, |_, c| if c[1] == 0 { [5.0, 6.0][c[0]] } else { 0.0 });
    }
}

#[test]
fn set_rows() {
    for (ids_type, dtype) in [DType::I32, DType::I64].into_iter().flat_map(|i| FLOATS.map(|d| (i, d))) {
        for look in [Look::Dense, Look::Permuted, Look::Window] {
            let mut case = Case::default();
            let values = case.look(look, LeafKind::Input, DType::F32, [7, 3, 2, 4]);
            // Row 5 of every matrix, then one that differs, then one that is out of range.
            let outside = if ids_type == DType::I64 { 4294967296.0 } else { 2147483647.0 };
            let picks = [5.0, 0.0, -1.0, 5.0, 1.0, 8.0, 5.0, 2.0, outside, 5.0, 3.0, -2147483648.0];
            let ids = case.leaf_of(LeafKind::Input, ids_type, [3, 2, 2, 1], &picks);
            let dst = case.look(look, LeafKind::Cache, dtype, [7, 8, 2, 4]);
            let node = case.graph.set_rows(values, ids, dst).unwrap();
            case.check(&format!("SET_ROWS {look:?} {ids_type} {dtype}"), node, |case, c| {
                let chosen = |i: &usize| case.at(ids, [*i, c[2] % 2, c[3] % 2, 0]) == c[1] as f64;
                match (0..3).find(chosen) {
                    Some(i) => round(dtype, case.at(values, [c[0], i, c[2], c[3]])),
                    None => case.at(dst, c),
                }
            });
        }
    }
}

#[test]
fn copies() {
    let pairs = FLOATS.into_iter().flat_map(|a| FLOATS.map(|b| (a, b)));
    let integers = [DType::I32, DType::I64];
    let pairs = pairs.chain(integers.into_iter().flat_map(|a| integers.map(|b| (a, b))));
    for (index, (of, to)) in pairs.enumerate() {
        for (look, dst_look) in LOOKS.into_iter().zip(0..).map(|(look, at)| (look, LOOKS[(at + index) % 4])) {
            for ne in [[6, 4, 3, 2], [8, 3, 2, 3], [144, 1, 1, 1]] {
                let mut case = Case::default();
                let a = case.look(look, LeafKind::Input, of, [6, 4, 3, 2]);
                let b = case.look(dst_look, LeafKind::Cache, to, ne);
                let node = case.graph.cpy(a, b).unwrap();
                let order: Vec<_> = coords([6, 4, 3, 2]).collect();
                case.check(&format!("CPY {of} {look:?} to {to} {dst_look:?} {ne:?}"), node, |case, c| {
                    let at = c[0] + ne[0] * (c[1] + ne[1] * (c[2] + ne[2] * c[3]));
                    round(to, case.at(a, order[at]))
                });
            }
        }
    }
}

#[test]
fn copies_keep_all_bits_of_wide_integers() {
    let values = [4294967297.0, -4294967297.0, 9007199254740991.0, -1.0];
    let mut case = Case::default();
    let a = case.leaf_of(LeafKind::Input, DType::I64, [2, 2, 1, 1], &values);
    let turned = case.graph.transpose(a).unwrap();
    let node = case.graph.cont(turned, [4, 1, 1, 1]).unwrap();
    case.check("CONT i64", node, |_, c| values[[0, 2, 1, 3][c[0]]]);
    let mut case = Case::default();
    let a = case.leaf_of(LeafKind::Input, DType::I64, [2, 2, 1, 1], &values);
    let b = case.leaf_of(LeafKind::Input, DType::I64, [2, 2, 1, 1], &values);
    let node = case.graph.concat(a, b, 1).unwrap();
    case.check("CONCAT i64", node, |_, c| values[(c[0] + 2 * c[1]) % 4]);
}

#[test]
fn contiguous_copies() {
    for (dtype, look) in FLOATS.into_iter().chain([DType::I32]).flat_map(|d| LOOKS.map(|l| (d, l))) {
        let mut case = Case::default();
        let a = case.look(look, LeafKind::Cache, dtype, [5, 4, 3, 2]);
        let node = case.graph.cont(a, [10, 12, 1, 1]).unwrap();
        let order: Vec<_> = coords([5, 4, 3, 2]).collect();
        case.check(&format!("CONT {look:?} {dtype}"), node, |case, c| case.at(a, order[c[0] + 10 * c[1]]));
    }
}

#[test]
fn repetitions() {
    for (dtype, look) in FLOATS.into_iter().flat_map(|d| LOOKS.map(|l| (d, l))) {
        let of = [3, 2, 1, 2];
        let mut case = Case::default();
        let a = case.look(look, LeafKind::Input, dtype, of);
        let node = case.graph.repeat(a, [6, 2, 5, 4]).unwrap();
        case.check(&format!("REPEAT {look:?} {dtype}"), node, |case, c| {
            case.at(a, [0, 1, 2, 3].map(|dim| c[dim] % of[dim]))
        });
    }
}

#[test]
fn concatenations() {
    let types = DType::ALL.into_iter().filter(|dtype| !dtype.is_quantized());
    for (dtype, dim) in types.flat_map(|d| [0u8, 1, 2, 3].map(|dim| (d, dim))) {
        for (split, more) in [(2, 3), (0, 3), (3, 0)] {
            let axis = usize::from(dim);
            let (mut first, mut second) = ([5, 4, 3, 2], [5, 4, 3, 2]);
            (first[axis], second[axis]) = (split, more);
            let looks = (LOOKS[axis], LOOKS[3 - axis]);
            let mut case = Case::default();
            let a = case.look(looks.0, LeafKind::Input, dtype, first);
            let b = case.look(looks.1, LeafKind::Input, dtype, second);
            let node = case.graph.concat(a, b, dim).unwrap();
            case.check(&format!("CONCAT {dtype} {looks:?} along {dim} after {split}"), node, |case, mut c| {
                if c[axis] < split {
                    return case.at(a, c);
                }
                c[axis] -= split;
                case.at(b, c)
            });
        }
    }
}

#[test]
fn row_sums() {
    for (ne, look) in
        [[1, 3, 2, 2], [63, 3, 2, 2], [64, 1, 1, 1], [1000, 2, 1, 3]].into_iter().flat_map(|n| LOOKS.map(|l| (n, l)))
    {
        let mut case = Case::default();
        let a = case.look(look, LeafKind::Input, DType::F32, ne);
        let node = case.graph.sum_rows(a).unwrap();
        case.check(&format!("SUM_ROWS {look:?} {ne:?}"), node, |case, c| {
            (0..ne[0]).map(|x| case.at(a, [x, c[1], c[2], c[3]])).sum()
        });
    }
}

#[test]
fn grids_of_more_than_one_row() {
    let mut case = Case::default();
    // More workgroups than one dimension of a grid has on any adapter by default.
    let a = case.input(DType::F32, [2, 70_000, 1, 1]);
    let node = case.graph.sum_rows(a).unwrap();
    case.check("SUM_ROWS", node, |case, c| case.at(a, c) + case.at(a, [1, c[1], 0, 0]));
}

#[test]
fn weights_may_lie_beside_what_is_written() {
    let mut case = Case { one_buffer: true, ..Case::default() };
    let weight = case.leaf(LeafKind::Weight, DType::F16, [40, 1, 1, 1]);
    let cache = case.leaf(LeafKind::Cache, DType::F32, [40, 1, 1, 1]);
    let node = case.graph.cpy(weight, cache).unwrap();
    case.check("CPY", node, |case, c| round(DType::F16, case.at(weight, c)));
}

#[test]
fn halves_overflow_to_infinity() {
    let mut case = Case::default();
    let a = case.leaf_of(LeafKind::Input, DType::F32, [3, 1, 1, 1], &[1e6, -1e6, 65504.0]);
    let b = case.leaf(LeafKind::Cache, DType::F16, [3, 1, 1, 1]);
    let node = case.graph.cpy(a, b).unwrap();
    case.check("CPY", node, |_, c| [f64::INFINITY, f64::NEG_INFINITY, f16::MAX.into()][c[0]]);
}
