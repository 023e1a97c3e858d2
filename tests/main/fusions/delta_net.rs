//! Gated delta nets that write their snapshots into a cache.

use super::{compare_on_all, count, fires, refuses, row};
use crate::devices::{all, cpu, unfused};
use crate::numbers::{indices, pairs};
use crate::operations::recurrent::delta_sources;
use crate::rig::{Form, Rig, called};
use wgfuse::fusion::{Decline, Matcher, Mode, Sequence};
use wgfuse::graph::{DType, LeafKind, Op, TensorId};

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
    b: Rig,
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
        let mut b = Rig::default();
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

    fn rig(&self) -> Rig {
        self.nodes().finish()
    }
}

impl GdnNodes {
    /// With a reader of the attention rows, which is the output.
    fn finish(self) -> Rig {
        self.finish_with(&[])
    }

    fn finish_with(mut self, more: &[TensorId]) -> Rig {
        let rows = self.b.view(self.gdn, [self.attention_bytes / 4, 1, 1, 1], 0);
        let read = self.b.op(Op::Sqr, &[rows]);
        let wanted: Vec<TensorId> = [self.cpy].into_iter().chain(more.iter().copied()).chain([read]).collect();
        self.b.finish(&wanted)
    }
}

pub fn near_miss(check: &str) -> Option<Rig> {
    let halves = ([STATE / 2, 2, 1, 1], [4, 2 * STATE, 4 * STATE, 4 * STATE]);
    let gdn = match check {
        "f32" => Gdn { half: true, ..Gdn::default() },
        "not_output" => {
            let mut nodes = Gdn::default().nodes();
            nodes.b.graph.set_output(nodes.gdn).expect("a tensor");
            return Some(nodes.finish());
        }
        "snapshot_view" => Gdn { skip: -4, ..Gdn::default() },
        "destination" => Gdn { destination: Some(halves), ..Gdn::default() },
        "tail_unread" => {
            let mut nodes = Gdn::default().nodes();
            let again = nodes.b.op(Op::Sqr, &[nodes.source]);
            return Some(nodes.finish_with(&[again]));
        }
        "destination_memory" => Gdn { destination_kind: LeafKind::Input, ..Gdn::default() },
        _ => return None,
    };
    Some(gdn.rig())
}

/// A delta net that starts from states in a cache and copies its snapshots back into it; gives the net, the copy and the
/// cache, of which the cells from 1 to `batch` of the first slots are written.
fn step(b: &mut Rig, size: usize, [tokens, batch, snapshots]: [usize; 3], per_channel: bool) -> [TensorId; 3] {
    let heads = 128 / size.max(64);
    let [q, k, v, g, beta] = delta_sources(b, Form::Padded, [size, 1, heads], [tokens, batch], per_channel);
    let state = size * size * heads;
    let (cells, slots) = (batch + 1, snapshots + 1);
    let written = tokens.min(snapshots);
    let cache = b.cache([state, cells, slots, 1]);
    let rows = b.view(cache, [state, cells * slots, 1, 1], 0);
    let picked: Vec<f64> = (0..batch).map(|i| (cells * slots - 1 - i) as f64).collect();
    let ids = b.given(LeafKind::Input, DType::I32, [batch, 1, 1, 1], &picked);
    let before = b.op(Op::GetRows, &[rows, ids]);
    let before = b.op(Op::Reshape { ne: [size, size, heads, batch] }, &[before]);
    let net = b.op(Op::GatedDeltaNet { snapshots: snapshots as u32 }, &[q, k, v, g, beta, before]);
    let tail = b.view(net, [state, batch, written, 1], 4 * size * heads * tokens * batch);
    let nb = b.graph.tensor(cache).nb();
    let into = b.op(Op::View { ne: [state, batch, written, 1], nb, offset: nb[1] }, &[cache]);
    let copy = b.op(Op::Cpy, &[tail, into]);
    b.written(copy, cache);
    let rows = b.view(net, [size * heads, tokens * batch, 1, 1], 0);
    b.want(Op::Cont { ne: [size * heads, tokens * batch, 1, 1] }, &[rows]);
    [net, copy, cache]
}

#[test]
fn write_through_changes_no_bit() {
    for (size, per_channel) in pairs([32, 64, 128], [false, true]) {
        let mut rig = Rig::default();
        let mut caches = Vec::new();
        for tokens in [1, 2, 4, 8] {
            for (batch, snapshots) in pairs([1, 2], [1, 2, 4]) {
                let [_, _, cache] = step(&mut rig, size, [tokens, batch, snapshots], per_channel);
                caches.push((cache, batch, tokens.min(snapshots)));
            }
        }
        compare_on_all(&format!("heads of {size}"), &rig, |what, loaded, fused, unfused| {
            assert_eq!(count(&loaded.plan(), GDN), caches.len(), "{what}");
            assert!(fused == unfused, "{what}: caches and rows are the same");
            for (&(cache, batch, written), found) in caches.iter().zip(fused.iter().step_by(2)) {
                let before = rig.contents(cache);
                for ((at, now), before) in indices(found.ne).zip(&found.all).zip(&before) {
                    let stored = (1..=batch).contains(&at[1]) && at[2] < written;
                    assert!(stored || now == before, "{what}: {at:?} is changed");
                }
            }
        });
    }
}

/// The snapshots are stored once, not twice.
#[test]
fn the_fused_kernel_leaves_the_tail_alone() {
    for (times, per_channel) in pairs([[1, 1, 1], [2, 2, 4], [8, 2, 4]], [false, true]) {
        let mut rig = Rig::default();
        let [net, copy, _] = step(&mut rig, 32, times, per_channel);
        // Which the planner would not fuse.
        rig.output(net);
        for device in all() {
            let found = rig.run_merged(&device, &[net, copy]).unwrap();
            let [_, rows, whole] = found.as_slice() else { panic!("a cache, rows and the net") };
            let (attention, tail) = whole.all.split_at(rows.all.len());
            assert!(attention == rows.all && tail.iter().all(|x| x.is_nan()), "{}: {times:?}", called(&device));
        }
    }
}

/// The newest state is both read and overwritten: a fused kernel could write what another part of it still reads.
#[test]
fn a_state_read_where_the_snapshot_goes_is_not_fused() {
    for times in [[3, 1, 1], [3, 2, 2], [1, 2, 4]] {
        let [tokens, batch, snapshots] = times;
        let mut rig = Rig::default();
        let [q, k, v, g, beta] = delta_sources(&mut rig, Form::Dense, [32, 1, HEADS], [tokens, batch], false);
        let (state, written) = (32 * 32 * HEADS, tokens.min(snapshots));
        let cache = rig.cache([state, batch, snapshots, 1]);
        let before = rig.view(cache, [32, 32, HEADS, batch], 0);
        let net = rig.op(Op::GatedDeltaNet { snapshots: snapshots as u32 }, &[q, k, v, g, beta, before]);
        let tail = rig.view(net, [state, batch, written, 1], 4 * 32 * HEADS * tokens * batch);
        let into = rig.view(cache, [state, batch, written, 1], 0);
        let copy = rig.op(Op::Cpy, &[tail, into]);
        rig.written(copy, cache);
        compare_on_all("a state in place", &rig, |what, loaded, _, _| {
            let plan = loaded.plan();
            assert_eq!(count(&plan, GDN), 0, "{what}");
            assert_eq!(plan.report.splits.len(), 1, "{what}");
        });
        // The CPU device reads everything before it writes anything.
        let merged = rig.run_merged(&cpu(), &[net, copy]).unwrap();
        assert!(merged == rig.run(&cpu(), unfused()).unwrap());
    }
}

#[test]
fn write_through_fires() {
    for (tokens, batch, snapshots) in [(1, 1, 1), (3, 1, 1), (3, 2, 1), (5, 1, 3), (2, 1, 3), (2, 2, 4), (1, 3, 4)] {
        fires(GDN, &Gdn { tokens, batch, snapshots, ..Gdn::default() }.rig());
    }
    // Snapshots may lie apart in the cache.
    let apart = ([STATE, 1, 3, 1], [4, 4 * STATE, 12 * STATE, 36 * STATE]);
    fires(GDN, &Gdn { tokens: 5, snapshots: 3, destination: Some(apart), ..Gdn::default() }.rig());
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
    refuses(GDN, &Gdn { skip: -4, ..Gdn::default() }.rig(), view);
    refuses(GDN, &Gdn { skip: -4 * (SIZE * HEADS) as isize, ..Gdn::default() }.rig(), view);
    let second = Gdn { tokens: 5, snapshots: 2, skip: 4 * STATE as isize, ..Gdn::default() };
    let one = ([STATE, 1, 1, 1], [4, 4 * STATE, 4 * STATE, 4 * STATE]);
    refuses(GDN, &Gdn { destination: Some(one), ..second }.rig(), view);
    refuses(GDN, &Gdn { through_reshape: true, ..Gdn::default() }.rig(), view);
    refuses(GDN, &Gdn { strided_source: true, ..Gdn::default() }.rig(), view);
    // Another node's tail: the copy reads a second delta net.
    let mut nodes = Gdn::default().nodes();
    let sources: Vec<TensorId> = nodes.b.graph.tensor(nodes.gdn).sources().collect();
    let other = nodes.b.op(Op::GatedDeltaNet { snapshots: 1 }, &sources);
    let cache = nodes.b.cache([STATE, 1, 1, 1]);
    let tail = nodes.b.view(nodes.gdn, [STATE, 1, 1, 1], nodes.attention_bytes);
    let copy = nodes.b.op(Op::Cpy, &[tail, cache]);
    let last = nodes.b.op(Op::Sqr, &[cache]);
    let rig = nodes.b.finish(&[nodes.gdn, other, copy, last]);
    let sequence = Sequence::new(&rig.graph, rig.graph.nodes(), Mode::Full);
    assert_eq!(Matcher::default().try_row(row(GDN), &sequence, 1), Err(view));
}

#[test]
fn write_through_goes_to_dense_snapshots() {
    let shape = Decline::Check("destination");
    let dense = |ne: [usize; 4]| (ne, [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]]);
    let refused = |gdn: Gdn, destination| {
        refuses(GDN, &Gdn { destination: Some(destination), ..gdn }.rig(), shape);
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
        let rig = nodes.finish_with(&[more]);
        match expected {
            Some(reason) => {
                refuses(GDN, &rig, reason);
                compare_on_all("a net whose tail has another reader", &rig, |_, _, _, _| {});
            }
            None => fires(GDN, &rig),
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
fn the_copy_follows_at_once() {
    let mut nodes = Gdn::default().nodes();
    let between = nodes.b.op(Op::Sqr, &[nodes.gdn]);
    let rig = nodes.b.finish(&[between, nodes.cpy]);
    refuses(GDN, &rig, Decline::Sequence);
}
