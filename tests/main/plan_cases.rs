//! Plans of small graphs: what is placed where, what is refused, and what is remembered.

use crate::invariants;
use crate::rig::Rig;
use crate::support::{LIMITS, leaves, plain};
use std::collections::HashMap;
use std::convert::Infallible;
use wgfuse::fusion::{Decline, Matcher};
use wgfuse::graph::{DType, Graph, LeafKind, Op, TensorId};
use wgfuse::plan::{
    BufferId, Leaves, Limits, Place, Placement, Plan, PlanCache, PlanError, PlanOptions, Signature, Slot, plan,
    plan_placed,
};

const X: [usize; 4] = [64, 4, 1, 1];
const ROW: [usize; 4] = [64, 1, 1, 1];

fn planned(graph: &Graph, options: &PlanOptions) -> Plan {
    let plan = plan(graph, &leaves(graph), &LIMITS, options).expect("a plan");
    invariants::check(graph, &plan, &LIMITS);
    plan
}

fn labels(plan: &Plan) -> Vec<String> {
    plan.fusions().map(|row| row.label()).collect()
}

fn norm_mul(b: &mut Rig, x: TensorId, w: TensorId) -> TensorId {
    let normed = b.rms_norm(x);
    b.op(Op::Mul, &[normed, w])
}

#[test]
fn an_empty_graph_has_an_empty_plan() {
    let graph = Graph::new();
    let plan = planned(&graph, &PlanOptions::default());
    assert!(plan.groups.is_empty() && plan.chunks.is_empty() && plan.stages.is_empty());
    // A graph of views alone needs no kernel either.
    let mut b = Rig::default();
    let x = b.input(X);
    let view = b.view(x, ROW, 0);
    assert!(planned(&b.done(&[view]), &PlanOptions::default()).groups.is_empty());
}

#[test]
fn results_that_are_fused_away_get_no_memory() {
    let mut b = Rig::default();
    let (x, w) = (b.input(X), b.weight(ROW));
    let normed = b.rms_norm(x);
    let scaled = b.op(Op::Mul, &[normed, w]);
    let graph = b.done(&[scaled]);
    let plan = planned(&graph, &PlanOptions::default());
    assert_eq!(plan.placement.slot(&graph, normed), None);
    assert!(plan.placement.slot(&graph, scaled).is_some());
    assert!(planned(&graph, &plain()).placement.slot(&graph, normed).is_some());
}

#[test]
fn a_source_lives_until_the_last_result_of_its_group() {
    // `x` is read by the norm alone, yet the fused kernel writes the product while it still reads `x`.
    let mut b = Rig::default();
    let (start, w) = (b.input(X), b.weight(ROW));
    let x = b.op(Op::Sqr, &[start]);
    let scaled = norm_mul(&mut b, x, w);
    let graph = b.done(&[scaled]);
    let plan = planned(&graph, &PlanOptions::default());
    let slot = |id| plan.placement.slot(&graph, id).expect("a slot");
    assert!(!slot(x).meets(&slot(scaled)));
}

#[test]
fn memory_is_used_again() {
    let mut b = Rig::default();
    let mut x = b.input(X);
    for _ in 0..50 {
        x = b.op(Op::Sqr, &[x]);
    }
    let graph = b.done(&[x]);
    let plan = planned(&graph, &PlanOptions::default());
    assert_eq!(plan.report.result_bytes, 51 * 1024);
    assert_eq!(plan.report.arena_bytes, 2 * 1024);
}

#[test]
fn an_input_keeps_its_memory_until_it_is_read() {
    let mut b = Rig::default();
    let (early, late) = (b.input(X), b.input(X));
    let mut x = early;
    for _ in 0..8 {
        x = b.op(Op::Sqr, &[x]);
    }
    let sum = b.op(Op::Add, &[x, late]);
    let graph = b.done(&[sum]);
    // The late input is listed when it is first read; the checker knows that it was written before all else.
    planned(&graph, &PlanOptions::default());
}

#[test]
fn outputs_survive_and_so_do_the_owners_of_output_views() {
    let mut b = Rig::default();
    let mut x = b.input(X);
    let first = b.op(Op::Sqr, &[x]);
    let view = b.view(first, ROW, 256);
    b.graph.set_output(view).expect("a tensor");
    x = first;
    for _ in 0..5 {
        x = b.op(Op::Sqr, &[x]);
    }
    planned(&b.done(&[view, x]), &PlanOptions::default());
}

#[test]
fn large_results_get_several_arenas() {
    let mut b = Rig::default();
    let x = b.input(X);
    let kept: Vec<TensorId> = (0..5).map(|_| b.op(Op::Sqr, &[x])).collect();
    let mut sum = kept[0];
    for &one in &kept[1..] {
        sum = b.op(Op::Add, &[sum, one]);
    }
    let graph = b.done(&[sum]);
    let limits = Limits { max_buffer_bytes: 2048, ..LIMITS };
    let plan = plan(&graph, &leaves(&graph), &limits, &plain()).expect("a plan");
    invariants::check(&graph, &plan, &limits);
    assert!(plan.placement.arenas().len() > 1);
    let small = Limits { max_buffer_bytes: 512, ..LIMITS };
    let refused = wgfuse::plan::plan(&graph, &leaves(&graph), &small, &plain());
    assert!(matches!(refused, Err(PlanError::TooLarge { bytes: 1024, limit: 512, .. })), "{refused:?}");
}

#[test]
fn leaves_must_be_placed_where_they_fit() {
    let mut b = Rig::default();
    let (x, w) = (b.input(X), b.weight(ROW));
    let product = b.op(Op::Mul, &[x, w]);
    let graph = b.done(&[product]);
    let with = |slot: Option<Slot>| {
        let leaves: Leaves = slot.map(|slot| (w, slot)).into_iter().collect();
        plan(&graph, &leaves, &LIMITS, &PlanOptions::default())
    };
    let slot = Slot { place: Place::Buffer(BufferId(3)), offset: 512, bytes: 256 };
    assert!(with(Some(slot)).is_ok());
    assert!(matches!(with(None), Err(PlanError::Unplaced { kind: LeafKind::Weight, .. })));
    let small = with(Some(Slot { bytes: 255, ..slot }));
    assert!(matches!(small, Err(PlanError::SlotSize { given: 255, expected: 256, .. })));
    let skewed = with(Some(Slot { offset: 4, ..slot }));
    assert!(matches!(skewed, Err(PlanError::SlotAlignment { given: 4, expected: 256, .. })));
    let endless = with(Some(Slot { offset: usize::MAX - 255, bytes: 256, ..slot }));
    assert!(matches!(endless, Err(PlanError::SlotSize { .. })));
    let inside = with(Some(Slot { place: Place::Arena(0), ..slot }));
    assert!(matches!(inside, Err(PlanError::LeafInArena { arena: 0, .. })));
    let no_alignment = plan(&graph, &leaves(&graph), &Limits { alignment: 0, ..LIMITS }, &plain());
    assert!(matches!(no_alignment, Err(PlanError::Limits { name: "alignment", given: 0, .. })));
}

#[test]
fn an_input_may_be_given_a_place() {
    let mut b = Rig::default();
    let x = b.input(X);
    let square = b.op(Op::Sqr, &[x]);
    let graph = b.done(&[square]);
    let slot = Slot { place: Place::Buffer(BufferId(7)), offset: 0, bytes: 4096 };
    let plan = plan(&graph, &Leaves::from([(x, slot)]), &LIMITS, &plain()).expect("a plan");
    let placed = plan.placement.slot(&graph, x);
    assert_eq!(placed, Some(Slot { bytes: 1024, ..slot }));
    assert_eq!(plan.report.arena_bytes, 1024);
}

/// A write of `values` to the second of two places in one cache, read from the first.
fn copy_within_cache(from: usize, to: usize) -> Graph {
    let mut b = Rig::default();
    let cache = b.cache([256, 1, 1, 1]);
    let source = b.view(cache, ROW, from);
    let destination = b.view(cache, ROW, to);
    let cpy = b.op(Op::Cpy, &[source, destination]);
    b.done(&[cpy])
}

#[test]
fn a_copy_may_not_overlap_its_source() {
    planned(&copy_within_cache(0, 256), &PlanOptions::default());
    for (from, to) in [(0, 0), (0, 252), (256, 4), (4, 0)] {
        let graph = copy_within_cache(from, to);
        let refused = plan(&graph, &leaves(&graph), &LIMITS, &PlanOptions::default());
        assert!(matches!(refused, Err(PlanError::Overlap { .. })), "{from} {to}: {refused:?}");
    }
}

#[test]
fn leaves_that_share_memory_are_seen() {
    // Two caches that a host placed on top of each other.
    let mut b = Rig::default();
    let (one, two) = (b.cache(ROW), b.cache(ROW));
    let cpy = b.op(Op::Cpy, &[one, two]);
    let graph = b.done(&[cpy]);
    let at = |offset| Slot { place: Place::Buffer(BufferId(0)), offset, bytes: 256 };
    let given = |offset| Leaves::from([(one, at(0)), (two, at(offset))]);
    assert!(plan(&graph, &given(256), &LIMITS, &PlanOptions::default()).is_ok());
    let error = plan(&graph, &given(0), &LIMITS, &PlanOptions::default()).map(|_| ()).expect_err("an overlap");
    assert!(matches!(error, PlanError::SharedLeaves { .. }), "{error}");
}

#[test]
fn scaling_in_place_is_allowed() {
    let mut b = Rig::default();
    let x = b.input(X);
    let square = b.op(Op::Sqr, &[x]);
    let scaled = b.op(Op::Scale { scale: 2.0, bias: 0.0, in_place: true }, &[square]);
    let last = b.op(Op::Sqr, &[scaled]);
    let graph = b.done(&[last]);
    let plan = planned(&graph, &PlanOptions::default());
    assert_eq!(plan.placement.slot(&graph, scaled), plan.placement.slot(&graph, square));
}

/// A delta net whose state is read straight from the cache that its snapshot is written to.
fn delta_net(read_at: usize) -> Graph {
    let mut b = Rig::default();
    let (s, h, t) = (4, 2, 3);
    let mut sources: Vec<TensorId> = (0..3).map(|_| b.input([s, h, t, 1])).collect();
    sources.extend([b.input([1, h, t, 1]), b.input([1, h, t, 1])]);
    let cache = b.cache([1024, 1, 1, 1]);
    sources.push(b.view(cache, [s, s, h, 1], read_at));
    let gdn = b.op(Op::GatedDeltaNet { snapshots: 1 }, &sources);
    let tail = b.view(gdn, [s * s * h, 1, 1, 1], 4 * s * h * t);
    let destination = b.view(cache, [s * s * h, 1, 1, 1], 0);
    let cpy = b.op(Op::Cpy, &[tail, destination]);
    let rows = b.view(gdn, [s * h, t, 1, 1], 0);
    let normed = b.rms_norm(rows);
    b.done(&[cpy, normed])
}

#[test]
fn a_fused_group_that_would_overwrite_its_source_is_split() {
    let apart = delta_net(128);
    let plan = planned(&apart, &PlanOptions::default());
    assert_eq!(labels(&plan), ["GATED_DELTA_NET+CPY"]);
    assert!(plan.report.splits.is_empty());

    let same = delta_net(0);
    let plan = planned(&same, &PlanOptions::default());
    assert_eq!(labels(&plan), [""; 0]);
    let splits: Vec<_> = plan.report.splits.iter().map(|split| (split.row.label(), split.reason)).collect();
    assert_eq!(splits, [("GATED_DELTA_NET+CPY".to_owned(), Decline::Overlap)]);
    assert!(plan.report.to_string().contains("split GATED_DELTA_NET+CPY at GATED_DELTA_NET `#"), "{}", plan.report);
}

/// A sum of weights that lie in these buffers, planned for a device with so many bindings.
fn sum_over_buffers(buffers: &[u32], max_bindings: usize, matcher: Matcher) -> Plan {
    let mut b = Rig::default();
    let mut sum = b.input(X);
    let mut given = Leaves::new();
    for (at, &buffer) in buffers.iter().enumerate() {
        let w = b.weight(X);
        given.insert(w, Slot { place: Place::Buffer(BufferId(buffer)), offset: 1024 * at, bytes: 1024 });
        sum = b.op(Op::Add, &[sum, w]);
    }
    let graph = b.done(&[sum]);
    let limits = Limits { max_bindings, ..LIMITS };
    let plan = plan(&graph, &given, &limits, &PlanOptions { matcher, ..PlanOptions::default() }).expect("a plan");
    invariants::check(&graph, &plan, &limits);
    plan
}

#[test]
fn a_sum_that_binds_too_much_is_split() {
    let sizes = |plan: &Plan| plan.groups.iter().map(|group| group.nodes.len()).collect::<Vec<_>>();
    let all = Matcher::default();
    let one_buffer = sum_over_buffers(&[0; 6], 3, all);
    assert_eq!((sizes(&one_buffer), one_buffer.report.splits.len()), (vec![6], 0));
    let four = sum_over_buffers(&[0, 1, 2, 3, 3, 3], 4, all);
    assert_eq!(sizes(&four), [2, 4]);
    assert_eq!(labels(&four), ["ADD+ADD", "ADD+ADD+ADD+ADD"]);
    assert_eq!(four.report.splits.len(), 1);
    assert_eq!(four.report.splits[0].reason, Decline::Bindings);
    assert_eq!(sizes(&sum_over_buffers(&[0, 1, 2, 3], 3, all)), [1; 4]);
    assert_eq!(sizes(&sum_over_buffers(&[0, 1, 2, 3], 0, all)), [1; 4]);
    let no_pairs = sum_over_buffers(&[0, 1, 2, 2, 2], 4, all.without_row("ADD+ADD"));
    assert_eq!(sizes(&no_pairs), [1, 1, 3]);
}

#[test]
fn other_fusions_that_bind_too_much_are_split_into_nodes() {
    let mut b = Rig::default();
    let (x, w, shift) = (b.input(X), b.weight(ROW), b.weight(ROW));
    let scaled = norm_mul(&mut b, x, w);
    let sum = b.op(Op::Add, &[scaled, shift]);
    let graph = b.done(&[sum]);
    let with = |max_bindings| {
        let limits = Limits { max_bindings, ..LIMITS };
        plan(&graph, &leaves(&graph), &limits, &PlanOptions::default()).expect("a plan")
    };
    assert_eq!(labels(&with(4)), ["RMS_NORM+MUL+ADD"]);
    assert_eq!((labels(&with(3)), with(3).groups.len()), (vec![], 3));
}

/// Every tensor that owns memory in a slot of its own, one after the other.
fn apart(graph: &Graph) -> HashMap<TensorId, Slot> {
    let owners = graph.leaves().iter().chain(graph.nodes()).filter(|&&id| graph.root(id) == id);
    let place = |(at, &id): (usize, &TensorId)| {
        (id, Slot { place: Place::Arena(0), offset: at * 4096, bytes: graph.tensor(id).layout().extent() })
    };
    owners.enumerate().map(place).collect()
}

#[test]
fn a_foreign_placement_is_verified() {
    let mut b = Rig::default();
    let (x, w) = (b.input(X), b.weight(ROW));
    let square = b.op(Op::Sqr, &[x]);
    let scaled = norm_mul(&mut b, square, w);
    let graph = b.done(&[scaled]);
    let placed = |slots: &HashMap<TensorId, Slot>, arenas: usize| {
        plan_placed(&graph, &Placement::new(&graph, slots, vec![arenas]), &LIMITS, &PlanOptions::default())
    };
    let good = apart(&graph);
    let plan = placed(&good, 1 << 20).expect("a plan");
    invariants::check(&graph, &plan, &LIMITS);
    assert_eq!(labels(&plan), ["RMS_NORM+MUL"]);

    // The host frees the square after the norm, its last reader if nodes run one by one, and puts the product there.
    let mut reused = good.clone();
    reused.insert(scaled, good[&square]);
    let plan = placed(&reused, 1 << 20).expect("a plan");
    assert_eq!((labels(&plan), plan.groups.len()), (vec![], 3));
    assert_eq!(plan.report.splits[0].reason, Decline::Overlap);

    let mut clashing = good.clone();
    clashing.insert(square, good[&x]);
    assert!(matches!(placed(&clashing, 1 << 20), Err(PlanError::Overlap { .. })));
    let mut missing = good.clone();
    missing.remove(&w);
    assert!(matches!(placed(&missing, 1 << 20), Err(PlanError::Unstored { .. })));
    assert!(matches!(placed(&good, 4096), Err(PlanError::SlotSize { .. })));
}

#[test]
fn independent_work_shares_a_stage() {
    let mut b = Rig::default();
    let x = b.input(X);
    let weights: Vec<TensorId> = (0..3).map(|_| b.weight([64, 8, 1, 1])).collect();
    let products: Vec<TensorId> = weights.iter().map(|&w| b.op(Op::MUL_MAT, &[w, x])).collect();
    let sums = b.op(Op::Add, &[products[0], products[1]]);
    let sum = b.op(Op::Mul, &[sums, products[2]]);
    let graph = b.done(&[sum]);
    let plan = planned(&graph, &PlanOptions::default());
    assert_eq!(plan.stages, [0..3, 3..4, 4..5]);
    let serial = planned(&graph, &PlanOptions { concurrency: false, ..PlanOptions::default() });
    assert_eq!(serial.stages.len(), 5);
}

#[test]
fn chunks_change_nothing_else() {
    let mut b = Rig::default();
    let (mut x, w) = (b.input(X), b.weight(ROW));
    for _ in 0..10 {
        x = norm_mul(&mut b, x, w);
    }
    let graph = b.done(&[x]);
    let one = planned(&graph, &PlanOptions::default());
    for chunks in [2, 3, 7, 100] {
        let many = planned(&graph, &PlanOptions { chunks, ..PlanOptions::default() });
        assert_eq!(many.chunks.len(), chunks.min(10));
        assert_eq!((labels(&many), &many.placement), (labels(&one), &one.placement));
    }
}

fn decode_step(kv: usize) -> Graph {
    let mut b = Rig::default();
    let (x, cache) = (b.input(ROW), b.cache([64, 512, 1, 1]));
    let ids = b.leaf(LeafKind::Input, DType::I64, [1, 1, 1, 1]);
    let stored = b.op(Op::SetRows, &[x, ids, cache]);
    let used = b.view(stored, [64, kv, 1, 1], 0);
    let scores = b.op(Op::MUL_MAT, &[used, x]);
    b.done(&[scores])
}

#[test]
fn plans_are_remembered() {
    let mut cache: PlanCache<usize> = PlanCache::new(2);
    let mut made = 0;
    let mut ask = |kv: usize, options: &PlanOptions| {
        let graph = decode_step(kv);
        let make = || {
            made += 1;
            Ok::<usize, Infallible>(kv)
        };
        let value = *cache.get_or_make(&graph, &leaves(&graph), &LIMITS, options, make).expect("infallible");
        assert_eq!(value, kv);
        (cache.hits(), cache.misses())
    };
    let options = PlanOptions::default();
    assert_eq!(ask(32, &options), (0, 1));
    assert_eq!(ask(64, &options), (0, 2));
    for round in 0..5 {
        assert_eq!(ask(32, &options), (2 * round + 1, 2), "alternating graphs both hit");
        assert_eq!(ask(64, &options), (2 * round + 2, 2));
    }
    assert_eq!(ask(96, &options), (10, 3), "the one unused for longest makes room");
    assert_eq!(ask(64, &options), (11, 3));
    assert_eq!(ask(32, &options), (11, 4));
    assert_eq!(ask(32, &plain()), (11, 5), "options belong to the signature");
    assert_eq!(made, 5);
    assert_eq!(cache.len(), 2);
    cache.clear();
    assert!(cache.is_empty());
}

#[test]
fn a_value_that_cannot_be_made_is_not_remembered() {
    let mut cache: PlanCache<()> = PlanCache::new(0);
    let graph = decode_step(32);
    let given = leaves(&graph);
    let failed = cache.get_or_make(&graph, &given, &LIMITS, &plain(), || Err("no"));
    assert_eq!(failed, Err("no"));
    assert!(cache.is_empty());
    assert!(cache.get_or_make(&graph, &given, &LIMITS, &plain(), || Ok::<_, &str>(())).is_ok());
    assert_eq!((cache.hits(), cache.misses(), cache.len()), (0, 2, 1));
}

#[test]
fn describing_a_graph_again_allocates_nothing() {
    let graph = decode_step(32);
    let given = leaves(&graph);
    let mut signature = Signature::default();
    signature.describe(&graph, &given, &LIMITS, &plain());
    let (first, address) = (signature.bytes().to_vec(), signature.bytes().as_ptr());
    signature.describe(&graph, &given, &LIMITS, &plain());
    assert_eq!((signature.bytes(), signature.bytes().as_ptr()), (&first[..], address));
}

#[test]
fn a_listing_names_every_group() {
    let mut b = Rig::default();
    let (x, w) = (b.input(X), b.weight(ROW));
    let scaled = norm_mul(&mut b, x, w);
    b.graph.set_name(scaled, "attn_norm-0").expect("a tensor");
    let square = b.op(Op::Sqr, &[scaled]);
    let graph = b.done(&[square]);
    let plan = planned(&graph, &PlanOptions::default());
    let expected = "\
0 [NormMul] RMS_NORM `#2` + MUL `attn_norm-0` → arena 0 @ 1024+1024
1 SQR `#4` → arena 0 @ 0+1024
3 operations in 2 kernels
2048 bytes of arenas for 4096 bytes of results
fused 1 × RMS_NORM+MUL
";
    assert_eq!(plan.listing(&graph), expected);
}
