//! Every row of the fusion table fires where it should, and each of its conditions refuses a graph that breaks it alone.

use crate::invariants;
use crate::support::{Build, LIMITS, leaves};
use wgfuse::fusion::{Decline, Fusion, FusionId, FusionSet, Matcher, Mode, Sequence, TABLE, pack};
use wgfuse::graph::{DType, Graph, LeafKind, Op, TensorId};
use wgfuse::plan::{Plan, PlanOptions, plan};

const MODES: [Mode; 2] = [Mode::Structural, Mode::Full];

fn row(label: &str) -> &'static Fusion {
    TABLE.iter().find(|row| row.label() == label).unwrap_or_else(|| panic!("no row {label}"))
}

/// What the table says about a row at the first place where its operations follow one another.
fn verdict(graph: &Graph, label: &str, mode: Mode) -> Result<(), Decline> {
    let sequence = Sequence::new(graph, graph.nodes(), mode);
    let row = row(label);
    let verdicts = (0..sequence.nodes().len()).map(|at| Matcher::default().try_row(row, &sequence, at));
    verdicts.into_iter().find(|verdict| *verdict != Err(Decline::Sequence)).unwrap_or(Err(Decline::Sequence))
}

fn planned(graph: &Graph) -> Plan {
    planned_with(graph, &PlanOptions::default())
}

fn planned_with(graph: &Graph, options: &PlanOptions) -> Plan {
    let plan = plan(graph, &leaves(graph), &LIMITS, options).expect("a plan");
    invariants::check(graph, &plan, &LIMITS);
    plan
}

fn count(plan: &Plan, label: &str) -> usize {
    plan.report.fused().find(|(row, _)| row.label() == label).map_or(0, |(_, count)| count)
}

fn fires(label: &str, graph: &Graph) {
    for mode in MODES {
        assert_eq!(verdict(graph, label, mode), Ok(()), "{label} {mode:?}");
    }
    let plan = planned(graph);
    assert_eq!(count(&plan, label), 1, "{label} is used once:\n{}", plan.listing(graph));
}

fn refuses_in(modes: &[Mode], label: &str, graph: &Graph, reason: Decline) {
    for &mode in modes {
        assert_eq!(verdict(graph, label, mode), Err(reason), "{label} {mode:?}");
    }
    for optimize in [true, false] {
        let plan = planned_with(graph, &PlanOptions { optimize, ..PlanOptions::default() });
        assert_eq!(count(&plan, label), 0, "{label} is not used:\n{}", plan.listing(graph));
        // In another order the operations may not follow one another any more.
        if !optimize && reason != Decline::Sequence {
            let told = plan.report.declines().any(|(row, decline, _)| row.label() == label && decline == reason);
            assert!(told, "{label}: the report says why:\n{}", plan.report);
        }
    }
}

fn refuses(label: &str, graph: &Graph, reason: Decline) {
    refuses_in(&MODES, label, graph, reason);
}

const X: [usize; 4] = [64, 4, 1, 1];
const ROW: [usize; 4] = [64, 1, 1, 1];

/// `norm · scale (+ shift)` with these second sources.
fn norm_graph(norm: Op, seconds: impl FnOnce(&mut Build) -> Vec<TensorId>) -> Graph {
    let mut b = Build::default();
    let x = b.input(X);
    let seconds = seconds(&mut b);
    let normed = b.op(norm, &[x]);
    let scaled = b.op(Op::Mul, &[normed, seconds[0]]);
    let last = seconds.get(1).map_or(scaled, |&shift| b.op(Op::Add, &[scaled, shift]));
    b.done(&[last])
}

const NORM: Op = Op::Norm { eps: 1e-5 };
const RMS_NORM: Op = Op::RmsNorm { eps: 1e-6 };

#[test]
fn norms_fire() {
    for (norm, name) in [(NORM, "NORM"), (RMS_NORM, "RMS_NORM")] {
        fires(&format!("{name}+MUL"), &norm_graph(norm, |b| vec![b.weight(ROW)]));
        fires(&format!("{name}+MUL"), &norm_graph(norm, |b| vec![b.input(X)]));
        fires(&format!("{name}+MUL+ADD"), &norm_graph(norm, |b| vec![b.weight(ROW), b.weight(ROW)]));
        fires(&format!("{name}+MUL+ADD"), &norm_graph(norm, |b| vec![b.weight(ROW), b.input(X)]));
    }
}

#[test]
fn a_norm_of_width_one_fires_with_factors_of_width_one() {
    let mut b = Build::default();
    let (x, w) = (b.input([1, 4, 1, 1]), b.weight([1, 1, 1, 1]));
    let normed = b.rms_norm(x);
    let scaled = b.op(Op::Mul, &[normed, w]);
    fires("RMS_NORM+MUL", &b.done(&[scaled]));
}

#[test]
fn a_norm_must_be_the_first_source() {
    for (label, add) in [("RMS_NORM+MUL", false), ("RMS_NORM+MUL+ADD", true)] {
        let mut b = Build::default();
        let (x, w, shift) = (b.input(X), b.input(X), b.weight(ROW));
        let normed = b.rms_norm(x);
        let mut last = b.op(Op::Mul, &[w, normed]);
        if add {
            last = b.op(Op::Add, &[last, shift]);
        }
        refuses(label, &b.done(&[last]), Decline::Check("reads_previous_first"));
    }
    let mut b = Build::default();
    let (x, w, residual) = (b.input(X), b.weight(ROW), b.input(X));
    let normed = b.rms_norm(x);
    let scaled = b.op(Op::Mul, &[normed, w]);
    let last = b.op(Op::Add, &[residual, scaled]);
    let graph = b.done(&[last]);
    refuses("RMS_NORM+MUL+ADD", &graph, Decline::Check("reads_previous_first"));
    assert_eq!(count(&planned(&graph), "RMS_NORM+MUL"), 1, "the shorter row holds");
}

#[test]
fn factors_of_a_norm_have_its_width() {
    let narrow = [1, 1, 1, 1];
    refuses("RMS_NORM+MUL", &norm_graph(RMS_NORM, |b| vec![b.weight(narrow)]), Decline::Check("row_width"));
    refuses("NORM+MUL", &norm_graph(NORM, |b| vec![b.weight([32, 1, 1, 1])]), Decline::Check("row_width"));
    let shifted = norm_graph(RMS_NORM, |b| vec![b.weight(ROW), b.weight(narrow)]);
    refuses("RMS_NORM+MUL+ADD", &shifted, Decline::Check("row_width"));
    assert_eq!(count(&planned(&shifted), "RMS_NORM+MUL"), 1);
}

#[test]
fn factors_of_a_norm_have_contiguous_rows() {
    let strided = |b: &mut Build| {
        let w = b.weight([64, 2, 1, 1]);
        b.op(Op::View { ne: ROW, nb: [8, 512, 512, 512], offset: 0 }, &[w])
    };
    let graph = norm_graph(RMS_NORM, |b| vec![strided(b)]);
    refuses("RMS_NORM+MUL", &graph, Decline::Check("contiguous_rows"));
    let graph = norm_graph(RMS_NORM, |b| vec![b.weight(ROW), strided(b)]);
    refuses("RMS_NORM+MUL+ADD", &graph, Decline::Check("contiguous_rows"));
    // Rows that are dense may lie apart.
    let apart = |b: &mut Build| {
        let w = b.weight([64, 8, 1, 1]);
        b.op(Op::View { ne: X, nb: [4, 512, 2048, 2048], offset: 0 }, &[w])
    };
    fires("RMS_NORM+MUL", &norm_graph(RMS_NORM, |b| vec![apart(b)]));
}

#[test]
fn factors_of_a_norm_are_f32() {
    let half = |b: &mut Build| b.leaf(LeafKind::Weight, DType::F16, ROW);
    refuses("NORM+MUL", &norm_graph(NORM, |b| vec![half(b)]), Decline::Check("f32"));
    let shifted = norm_graph(NORM, |b| vec![b.weight(ROW), half(b)]);
    refuses("NORM+MUL+ADD", &shifted, Decline::Check("f32"));
}

#[test]
fn inner_results_are_used_once_and_wanted_by_nobody() {
    let build = |wanted: fn([TensorId; 3]) -> TensorId| {
        let mut b = Build::default();
        let (x, w, shift) = (b.input(X), b.weight(ROW), b.weight(ROW));
        let normed = b.rms_norm(x);
        let scaled = b.op(Op::Mul, &[normed, w]);
        let last = b.op(Op::Add, &[scaled, shift]);
        (b, [normed, scaled, last], wanted([normed, scaled, last]))
    };
    for (position, pick) in [(0, (|[n, _, _]| n) as fn([TensorId; 3]) -> TensorId), (1, |[_, s, _]| s)] {
        let (mut b, nodes, inner) = build(pick);
        let again = b.op(Op::Scale { scale: 2.0, bias: 0.0, in_place: false }, &[inner]);
        refuses("RMS_NORM+MUL+ADD", &b.done(&[nodes[2], again]), Decline::Used(position));

        let (mut b, nodes, inner) = build(pick);
        let looked_at = b.op(Op::Reshape { ne: [256, 1, 1, 1] }, &[inner]);
        refuses("RMS_NORM+MUL+ADD", &b.done(&[nodes[2], looked_at]), Decline::Used(position));

        let (mut b, nodes, inner) = build(pick);
        b.graph.set_output(inner).expect("a tensor");
        refuses("RMS_NORM+MUL+ADD", &b.done(&[nodes[2]]), Decline::Output(position));
    }
}

#[test]
fn a_result_that_is_not_stored_is_read_once() {
    let mut b = Build::default();
    let x = b.input(X);
    let normed = b.rms_norm(x);
    let squared = b.op(Op::Mul, &[normed, normed]);
    refuses("RMS_NORM+MUL", &b.done(&[squared]), Decline::Inside(1));

    let mut b = Build::default();
    let (x, w) = (b.input(X), b.weight(ROW));
    let normed = b.rms_norm(x);
    let scaled = b.op(Op::Mul, &[normed, w]);
    let sum = b.op(Op::Add, &[scaled, normed]);
    refuses("RMS_NORM+MUL+ADD", &b.done(&[sum]), Decline::Inside(2));

    let mut b = Build::default();
    let (x, y) = (b.input(X), b.input(X));
    let sum = b.op(Op::Add, &[x, y]);
    let twice = b.op(Op::Add, &[sum, sum]);
    refuses("ADD+ADD", &b.done(&[twice]), Decline::Inside(1));
}

#[test]
fn a_chain_is_linked_and_keeps_its_shape() {
    let mut b = Build::default();
    let (x, y, w) = (b.input(X), b.input(X), b.weight(ROW));
    let normed = b.rms_norm(x);
    let other = b.op(Op::Mul, &[y, w]);
    refuses("RMS_NORM+MUL", &b.done(&[normed, other]), Decline::NotChained(1));

    let mut b = Build::default();
    let (x, wide) = (b.input([64, 1, 1, 1]), b.input(X));
    let normed = b.rms_norm(x);
    let widened = b.op(Op::Mul, &[wide, normed]);
    refuses("RMS_NORM+MUL", &b.done(&[widened]), Decline::Shape(1));

    // The multiplication reads the norm through a view.
    let mut b = Build::default();
    let (x, w) = (b.input(X), b.weight([16, 1, 1, 1]));
    let normed = b.rms_norm(x);
    let heads = b.op(Op::Reshape { ne: [16, 16, 1, 1] }, &[normed]);
    let scaled = b.op(Op::Mul, &[heads, w]);
    refuses("RMS_NORM+MUL", &b.done(&[scaled]), Decline::NotChained(1));
}

#[test]
fn views_between_the_nodes_do_not_matter() {
    let mut b = Build::default();
    let (x, w) = (b.input(X), b.weight([2, 32, 1, 1]));
    let normed = b.rms_norm(x);
    let row = b.op(Op::Reshape { ne: ROW }, &[w]);
    let scaled = b.op(Op::Mul, &[normed, row]);
    let graph = b.done(&[scaled]);
    fires("RMS_NORM+MUL", &graph);
    let packs = pack(&graph, Matcher::default());
    assert_eq!((packs.len(), &packs[0]), (1, &(0..3)), "the view travels along");
}

/// `x + addends…`.
fn sum_graph(addends: impl FnOnce(&mut Build) -> Vec<TensorId>) -> Graph {
    let mut b = Build::default();
    let mut sum = b.input(X);
    for addend in addends(&mut b) {
        sum = b.op(Op::Add, &[sum, addend]);
    }
    b.done(&[sum])
}

fn adds(length: usize) -> String {
    vec!["ADD"; length].join("+")
}

#[test]
fn sums_fire() {
    for length in 2..=7 {
        fires(&adds(length), &sum_graph(|b| (0..length).map(|_| b.weight(ROW)).collect()));
        fires(&adds(length), &sum_graph(|b| (0..length).map(|_| b.input(X)).collect()));
        fires(&adds(length), &sum_graph(|b| (0..length).map(|_| b.cache(X)).collect()));
    }
}

#[test]
fn sums_are_cut_in_sevens() {
    let graph = sum_graph(|b| (0..64).map(|_| b.input(X)).collect());
    let plan = planned(&graph);
    assert_eq!((count(&plan, &adds(7)), plan.groups.len()), (9, 10));
    assert!(plan.groups.last().is_some_and(|group| group.fusion.is_none()), "and one stays alone");
    let graph = sum_graph(|b| (0..16).map(|_| b.input(X)).collect());
    let plan = planned(&graph);
    assert_eq!((count(&plan, &adds(7)), count(&plan, &adds(2))), (2, 1));
}

#[test]
fn a_sum_accumulates_in_its_first_source() {
    let mut b = Build::default();
    let (x, y, z) = (b.input(X), b.input(X), b.input(X));
    let sum = b.op(Op::Add, &[x, y]);
    let swapped = b.op(Op::Add, &[z, sum]);
    refuses("ADD+ADD", &b.done(&[swapped]), Decline::Check("reads_previous_first"));
}

#[test]
fn addends_have_one_layout() {
    let differs = Decline::Check("addend_layouts");
    refuses("ADD+ADD", &sum_graph(|b| vec![b.weight(ROW), b.weight(X)]), differs);
    let half = |b: &mut Build| b.leaf(LeafKind::Weight, DType::F16, X);
    refuses("ADD+ADD", &sum_graph(|b| vec![b.weight(X), half(b)]), differs);
    let transposed = |b: &mut Build| {
        let w = b.weight([4, 64, 1, 1]);
        b.op(Op::Transpose, &[w])
    };
    refuses("ADD+ADD", &sum_graph(|b| vec![b.weight(X), transposed(b)]), differs);
    // Only the stride of a dimension with one element differs.
    let padded = |b: &mut Build| {
        let w = b.weight([128, 1, 1, 1]);
        b.op(Op::View { ne: ROW, nb: [4, 512, 512, 512], offset: 0 }, &[w])
    };
    refuses("ADD+ADD", &sum_graph(|b| vec![b.weight(ROW), padded(b)]), differs);
    fires("ADD+ADD", &sum_graph(|b| vec![padded(b), padded(b)]));
}

#[test]
fn addends_are_of_one_class_when_it_is_known() {
    let kinds = [LeafKind::Weight, LeafKind::Cache, LeafKind::Input];
    for (first, second) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)].map(|(a, b)| (kinds[a], kinds[b])) {
        let graph = sum_graph(|b| vec![b.leaf(first, DType::F32, X), b.leaf(second, DType::F32, X)]);
        assert_eq!(verdict(&graph, "ADD+ADD", Mode::Structural), Ok(()), "{first:?} {second:?}");
        refuses_in(&[Mode::Full], "ADD+ADD", &graph, Decline::Check("addend_classes"));
    }
    // The class is the root's, seen through views; inputs and results are of one class.
    let mut b = Build::default();
    let (x, w, cache, input) = (b.input(X), b.weight([256, 1, 1, 1]), b.cache([512, 1, 1, 1]), b.input(X));
    let computed = b.op(Op::Sqr, &[input]);
    let through = [b.view(w, X, 0), b.view(cache, X, 1024)];
    let sums = [[through[0], through[1]], [input, computed]].map(|[one, two]| {
        let sum = b.op(Op::Add, &[x, one]);
        b.op(Op::Add, &[sum, two])
    });
    let mut mixed = Build { graph: b.graph.clone() };
    mixed.graph.expand(sums[0]).expect("a tensor");
    refuses_in(&[Mode::Full], "ADD+ADD", &mixed.done(&[sums[0]]), Decline::Check("addend_classes"));
    fires("ADD+ADD", &b.done(&[computed, sums[1]]));
}

/// The parts of a snake, each to be varied alone.
struct Snake {
    x: (DType, [usize; 4]),
    factor: (DType, [usize; 4]),
    second_factor: (DType, [usize; 4]),
    swapped: [bool; 3],
    other_x: bool,
    strided: bool,
}

impl Default for Snake {
    fn default() -> Self {
        let factor = (DType::F32, [1, 8, 1, 1]);
        Self {
            x: (DType::F32, [16, 8, 1, 1]),
            factor,
            second_factor: factor,
            swapped: [false; 3],
            other_x: false,
            strided: false,
        }
    }
}

impl Snake {
    fn graph(&self) -> Graph {
        let mut b = Build::default();
        let pair = |swap: bool, a: TensorId, b: TensorId| if swap { [b, a] } else { [a, b] };
        let mut x = b.leaf(LeafKind::Input, self.x.0, self.x.1);
        if self.strided {
            let wide = b.leaf(LeafKind::Input, self.x.0, [2 * self.x.1[0], self.x.1[1], 1, 1]);
            let nb = b.graph.tensor(wide).nb();
            x = b.op(Op::View { ne: self.x.1, nb, offset: 0 }, &[wide]);
        }
        let a = b.leaf(LeafKind::Weight, self.factor.0, self.factor.1);
        let inv_b = b.leaf(LeafKind::Weight, self.second_factor.0, self.second_factor.1);
        let added = if self.other_x { b.leaf(LeafKind::Input, self.x.0, self.x.1) } else { x };
        let scaled = b.op(Op::Mul, &pair(self.swapped[0], x, a));
        let sine = b.op(Op::Sin, &[scaled]);
        let squared = b.op(Op::Sqr, &[sine]);
        let weighted = b.op(Op::Mul, &pair(self.swapped[1], squared, inv_b));
        let sum = b.op(Op::Add, &pair(self.swapped[2], added, weighted));
        b.done(&[sum])
    }
}

const SNAKE: &str = "MUL+SIN+SQR+MUL+ADD";

#[test]
fn snakes_fire() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        fires(SNAKE, &Snake { x: (dtype, [16, 8, 1, 1]), ..Snake::default() }.graph());
        fires(SNAKE, &Snake { x: (dtype, [16, 8, 1, 1]), swapped: [false, false, true], ..Snake::default() }.graph());
    }
    // A product takes the shape and type of its first source, so that factors can lead only where both agree.
    let column = (DType::F32, [1, 8, 1, 1]);
    for bits in 0..8 {
        let swapped = [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
        fires(SNAKE, &Snake { x: column, swapped, ..Snake::default() }.graph());
    }
}

#[test]
fn a_snake_adds_what_it_scales() {
    refuses(SNAKE, &Snake { other_x: true, ..Snake::default() }.graph(), Decline::Check("same_x"));
}

#[test]
fn a_snake_is_two_dimensional() {
    for ne in [[64, 32, 2, 1], [64, 32, 1, 2], [64, 32, 2, 3]] {
        let factor = (DType::F32, [1, 32, 1, 1]);
        let snake = Snake { x: (DType::F32, ne), factor, second_factor: factor, ..Snake::default() };
        refuses(SNAKE, &snake.graph(), Decline::Check("two_dimensional"));
    }
}

#[test]
fn a_snake_has_one_type_and_f32_factors() {
    let types = Decline::Check("types");
    let half = (DType::F16, [1, 8, 1, 1]);
    refuses(SNAKE, &Snake { factor: half, ..Snake::default() }.graph(), types);
    refuses(SNAKE, &Snake { second_factor: half, ..Snake::default() }.graph(), types);
    // The factor leads, so that what follows has its type.
    let leading = Snake { x: half, swapped: [true, false, false], ..Snake::default() };
    refuses(SNAKE, &leading.graph(), types);
}

#[test]
fn snake_factors_are_columns() {
    let factors = Decline::Check("factors");
    for ne in [[16, 8, 1, 1], [1, 1, 1, 1], [1, 4, 1, 1], [16, 1, 1, 1]] {
        let other = (DType::F32, ne);
        refuses(SNAKE, &Snake { factor: other, ..Snake::default() }.graph(), factors);
        refuses(SNAKE, &Snake { second_factor: other, ..Snake::default() }.graph(), factors);
    }
}

#[test]
fn a_snake_is_contiguous() {
    refuses(SNAKE, &Snake { strided: true, ..Snake::default() }.graph(), Decline::Check("contiguous"));
}

/// A gated delta net and the copy of its snapshots, each part to be varied alone.
struct Gdn {
    tokens: usize,
    batch: usize,
    snapshots: u32,
    /// Bytes between the attention rows' end and where the copied view starts.
    skip: isize,
    /// Shape and distance between snapshots of the destination; by default those of what is written.
    destination: Option<([usize; 4], [usize; 4])>,
    destination_kind: LeafKind,
    half: bool,
    through_reshape: bool,
    strided_source: bool,
}

const GDN: &str = "GATED_DELTA_NET+CPY";
const SIZE: usize = 4;
const HEADS: usize = 2;
const STATE: usize = SIZE * SIZE * HEADS;

impl Default for Gdn {
    fn default() -> Self {
        Self {
            tokens: 3,
            batch: 1,
            snapshots: 1,
            skip: 0,
            destination: None,
            destination_kind: LeafKind::Cache,
            half: false,
            through_reshape: false,
            strided_source: false,
        }
    }
}

struct GdnNodes {
    b: Build,
    gdn: TensorId,
    source: TensorId,
    cpy: TensorId,
    attention_bytes: usize,
}

impl Gdn {
    fn attention_bytes(&self) -> usize {
        4 * SIZE * HEADS * self.tokens * self.batch
    }

    fn nodes(&self) -> GdnNodes {
        let mut b = Build::default();
        let (t, n) = (self.tokens, self.batch);
        let q = b.input([SIZE, HEADS, t, n]);
        let k = b.input([SIZE, HEADS, t, n]);
        let v = b.input([SIZE, HEADS, t, n]);
        let g = b.input([1, HEADS, t, n]);
        let beta = b.input([1, HEADS, t, n]);
        let state = b.input([SIZE, SIZE, HEADS, n]);
        let gdn = b.op(Op::GatedDeltaNet { snapshots: self.snapshots }, &[q, k, v, g, beta, state]);
        let written = self.tokens.min(self.snapshots as usize);
        let dense = [4, 4 * STATE, 4 * STATE * n, 4 * STATE * n * written];
        let (ne, nb) = self.destination.unwrap_or(([STATE, n, written, 1], dense));
        let offset = self.attention_bytes().checked_add_signed(self.skip).expect("an offset");
        let elements: usize = ne.iter().product();
        let mut base = gdn;
        if self.through_reshape {
            let whole = b.graph.tensor(gdn).layout().elements();
            base = b.op(Op::Reshape { ne: [whole, 1, 1, 1] }, &[gdn]);
        }
        let source = if self.strided_source {
            b.op(Op::View { ne: [STATE / 2, 2, 1, 1], nb: [8, 4, 4, 4], offset }, &[base])
        } else {
            b.view(base, [elements, 1, 1, 1], offset)
        };
        let dtype = if self.half { DType::F16 } else { DType::F32 };
        let cache = b.leaf(self.destination_kind, dtype, [4096, 1, 1, 1]);
        let nb = if self.half { nb.map(|stride| stride / 2) } else { nb };
        let destination = b.op(Op::View { ne, nb, offset: 64 }, &[cache]);
        let cpy = b.op(Op::Cpy, &[source, destination]);
        GdnNodes { b, gdn, source, cpy, attention_bytes: self.attention_bytes() }
    }

    fn graph(&self) -> Graph {
        self.nodes().finish()
    }
}

impl GdnNodes {
    /// With a reader of the attention rows, which is the output.
    fn finish(self) -> Graph {
        self.finish_with(&[])
    }

    fn finish_with(mut self, more: &[TensorId]) -> Graph {
        let rows = self.b.view(self.gdn, [self.attention_bytes / 4, 1, 1, 1], 0);
        let read = self.b.op(Op::Sqr, &[rows]);
        let wanted: Vec<TensorId> = [self.cpy].into_iter().chain(more.iter().copied()).chain([read]).collect();
        self.b.done(&wanted)
    }
}

#[test]
fn write_through_fires() {
    for (tokens, batch, snapshots) in [(1, 1, 1), (3, 1, 1), (3, 2, 1), (5, 1, 3), (2, 1, 3), (2, 2, 4), (1, 3, 4)] {
        fires(GDN, &Gdn { tokens, batch, snapshots, ..Gdn::default() }.graph());
    }
    // Snapshots may lie apart in the cache.
    let apart = ([STATE, 1, 3, 1], [4, 4 * STATE, 12 * STATE, 36 * STATE]);
    fires(GDN, &Gdn { tokens: 5, snapshots: 3, destination: Some(apart), ..Gdn::default() }.graph());
}

#[test]
fn write_through_is_f32() {
    refuses(GDN, &Gdn { half: true, ..Gdn::default() }.graph(), Decline::Check("f32"));
}

#[test]
fn write_through_keeps_nothing_for_the_caller() {
    for pick in [|nodes: &GdnNodes| nodes.gdn, |nodes: &GdnNodes| nodes.cpy] {
        let mut nodes = Gdn::default().nodes();
        let id = pick(&nodes);
        nodes.b.graph.set_output(id).expect("a tensor");
        refuses(GDN, &nodes.finish(), Decline::Check("not_output"));
    }
    let mut nodes = Gdn::default().nodes();
    nodes.b.graph.set_output(nodes.source).expect("a tensor");
    refuses(GDN, &nodes.finish(), Decline::Check("tail_unread"));
}

#[test]
fn write_through_copies_exactly_the_tail() {
    let view = Decline::Check("snapshot_view");
    refuses(GDN, &Gdn { skip: -4, ..Gdn::default() }.graph(), view);
    refuses(GDN, &Gdn { skip: -4 * (SIZE * HEADS) as isize, ..Gdn::default() }.graph(), view);
    let second = Gdn { tokens: 5, snapshots: 2, skip: 4 * STATE as isize, ..Gdn::default() };
    let one = ([STATE, 1, 1, 1], [4, 4 * STATE, 4 * STATE, 4 * STATE]);
    refuses(GDN, &Gdn { destination: Some(one), ..second }.graph(), view);
    refuses(GDN, &Gdn { through_reshape: true, ..Gdn::default() }.graph(), view);
    refuses(GDN, &Gdn { strided_source: true, ..Gdn::default() }.graph(), view);
    // Another node's tail: the copy reads a second delta net.
    let mut nodes = Gdn::default().nodes();
    let sources: Vec<TensorId> = nodes.b.graph.tensor(nodes.gdn).sources().collect();
    let other = nodes.b.op(Op::GatedDeltaNet { snapshots: 1 }, &sources);
    let cache = nodes.b.cache([STATE, 1, 1, 1]);
    let tail = nodes.b.view(nodes.gdn, [STATE, 1, 1, 1], nodes.attention_bytes);
    let copy = nodes.b.op(Op::Cpy, &[tail, cache]);
    let last = nodes.b.op(Op::Sqr, &[cache]);
    let graph = Build { graph: nodes.b.graph }.done(&[nodes.gdn, other, copy, last]);
    let sequence = Sequence::new(&graph, graph.nodes(), Mode::Full);
    assert_eq!(Matcher::default().try_row(row(GDN), &sequence, 1), Err(view));
}

#[test]
fn write_through_goes_to_dense_snapshots() {
    let shape = Decline::Check("destination");
    let dense = |ne: [usize; 4]| (ne, [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]]);
    let refused = |gdn: Gdn, destination| {
        refuses(GDN, &Gdn { destination: Some(destination), ..gdn }.graph(), shape);
    };
    refused(Gdn::default(), dense([STATE / 2, 2, 1, 1]));
    refused(Gdn::default(), dense([SIZE, SIZE, HEADS, 1]));
    refused(Gdn { batch: 2, ..Gdn::default() }, dense([STATE, 1, 2, 1]));
    refused(Gdn { batch: 2, ..Gdn::default() }, dense([2 * STATE, 1, 1, 1]));
    refused(Gdn { batch: 2, ..Gdn::default() }, dense([STATE, 1, 1, 2]));
    // Fewer and more snapshots than are written.
    refused(Gdn { tokens: 5, snapshots: 3, ..Gdn::default() }, dense([STATE, 1, 2, 1]));
    refused(Gdn { tokens: 2, snapshots: 3, ..Gdn::default() }, dense([STATE, 1, 3, 1]));
    // Elements apart, sequences apart.
    refused(Gdn::default(), ([STATE, 1, 1, 1], [8, 8 * STATE, 8 * STATE, 8 * STATE]));
    refused(Gdn { batch: 2, ..Gdn::default() }, ([STATE, 2, 1, 1], [4, 8 * STATE, 16 * STATE, 16 * STATE]));
}

#[test]
fn write_through_leaves_no_other_reader_of_the_tail() {
    let unread = Decline::Check("tail_unread");
    let with = |reader: fn(&mut GdnNodes) -> TensorId, expected: Option<Decline>| {
        let mut nodes = Gdn { tokens: 3, snapshots: 2, ..Gdn::default() }.nodes();
        let more = reader(&mut nodes);
        let graph = nodes.finish_with(&[more]);
        match expected {
            Some(reason) => refuses(GDN, &graph, reason),
            None => fires(GDN, &graph),
        }
    };
    let second_copy = |nodes: &mut GdnNodes| {
        let other = nodes.b.cache([STATE, 1, 2, 1]);
        nodes.b.op(Op::Cpy, &[nodes.source, other])
    };
    with(second_copy, Some(unread));
    let the_whole_result = |nodes: &mut GdnNodes| nodes.b.op(Op::Sqr, &[nodes.gdn]);
    with(the_whole_result, Some(unread));
    let part_of_the_tail = |nodes: &mut GdnNodes| {
        let part = nodes.b.view(nodes.gdn, [1, 1, 1, 1], nodes.attention_bytes + 4 * STATE);
        nodes.b.op(Op::Sqr, &[part])
    };
    with(part_of_the_tail, Some(unread));
    let across_the_boundary = |nodes: &mut GdnNodes| {
        let part = nodes.b.view(nodes.gdn, [2, 1, 1, 1], nodes.attention_bytes - 4);
        nodes.b.op(Op::Sqr, &[part])
    };
    with(across_the_boundary, Some(unread));
    let through_two_views = |nodes: &mut GdnNodes| {
        let part = nodes.b.view(nodes.gdn, [STATE, 2, 1, 1], nodes.attention_bytes);
        let row = nodes.b.view(part, [STATE, 1, 1, 1], 4 * STATE);
        nodes.b.op(Op::Sqr, &[row])
    };
    with(through_two_views, Some(unread));
    let an_output_view = |nodes: &mut GdnNodes| {
        let part = nodes.b.view(nodes.gdn, [STATE, 1, 1, 1], nodes.attention_bytes);
        nodes.b.graph.set_output(part).expect("a tensor");
        part
    };
    with(an_output_view, Some(unread));
    let only_looked_at = |nodes: &mut GdnNodes| nodes.b.view(nodes.gdn, [STATE, 1, 1, 1], nodes.attention_bytes);
    with(only_looked_at, None);
    let attention_rows = |nodes: &mut GdnNodes| {
        let rows = nodes.b.view(nodes.gdn, [SIZE, HEADS, 3, 1], 0);
        nodes.b.rms_norm(rows)
    };
    with(attention_rows, None);
}

#[test]
fn write_through_goes_to_memory_that_lasts() {
    let graph = Gdn { destination_kind: LeafKind::Input, ..Gdn::default() }.graph();
    assert_eq!(verdict(&graph, GDN, Mode::Structural), Ok(()));
    refuses_in(&[Mode::Full], GDN, &graph, Decline::Check("destination_memory"));
}

#[test]
fn the_copy_follows_at_once() {
    let mut nodes = Gdn::default().nodes();
    let between = nodes.b.op(Op::Sqr, &[nodes.gdn]);
    let graph = Build { graph: nodes.b.graph }.done(&[between, nodes.cpy]);
    refuses(GDN, &graph, Decline::Sequence);
}

#[test]
fn rows_can_be_switched_off() {
    let graph = norm_graph(RMS_NORM, |b| vec![b.weight(ROW), b.weight(ROW)]);
    let with = |matcher| {
        let options = PlanOptions { matcher, ..PlanOptions::default() };
        plan(&graph, &leaves(&graph), &LIMITS, &options).expect("a plan")
    };
    let all = Matcher::new(FusionSet::Published12);
    assert_eq!(count(&with(all), "RMS_NORM+MUL+ADD"), 1);
    let shorter = with(all.without(FusionId::NormMulAdd));
    assert_eq!(count(&shorter, "RMS_NORM+MUL"), 1);
    assert!(shorter.report.declines().any(|(_, decline, _)| decline == Decline::Disabled));
    assert_eq!(count(&with(all.without_row("RMS_NORM+MUL+ADD")), "RMS_NORM+MUL"), 1);
    assert_eq!(with(all.without(FusionId::NormMulAdd).without(FusionId::NormMul)).fusions().count(), 0);
    assert_eq!(with(Matcher::off()).fusions().count(), 0);
}

#[test]
fn a_structural_sequence_is_broken_by_empty_tensors_and_a_full_one_is_not() {
    let mut b = Build::default();
    let (x, w, nothing) = (b.input(X), b.weight(ROW), b.input([0, 1, 1, 1]));
    let normed = b.rms_norm(x);
    let empty = b.op(Op::Sqr, &[nothing]);
    let scaled = b.op(Op::Mul, &[normed, w]);
    let graph = b.done(&[normed, empty, scaled]);
    assert_eq!(verdict(&graph, "RMS_NORM+MUL", Mode::Structural), Err(Decline::Sequence));
    assert_eq!(verdict(&graph, "RMS_NORM+MUL", Mode::Full), Ok(()));
    assert_eq!(count(&planned(&graph), "RMS_NORM+MUL"), 1);
}
