//! Plans of random graphs.

use crate::invariants;
use crate::rig::Rig;
use crate::support::{LIMITS, leaves, plain};
use proptest::prelude::*;
use wgfuse::fusion::{FusionSet, Matcher};
use wgfuse::graph::{DType, Graph, LeafKind, Op, Tensor, TensorId, Unary};
use wgfuse::plan::{Limits, Plan, PlanError, PlanOptions, Signature, plan};

const X: [usize; 4] = [16, 4, 1, 1];

/// One step of a random graph: an operation and what it picks from what is there.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    op: u8,
    picks: [u8; 3],
    output: bool,
    late: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (0..OPS, any::<[u8; 3]>(), prop::bool::weighted(0.1), prop::bool::weighted(0.2))
        .prop_map(|(op, picks, output, late)| Step { op, picks, output, late })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

/// What random graphs are made of.
struct Pool {
    b: Rig,
    values: Vec<TensorId>,
    weights: Vec<TensorId>,
    caches: Vec<TensorId>,
    ids: TensorId,
}

const OPS: u8 = 22;

impl Pool {
    fn new() -> Self {
        let mut b = Rig::default();
        let values = vec![b.input(X), b.input(X)];
        let weights = vec![b.weight([16, 1, 1, 1]), b.weight([16, 1, 1, 1]), b.weight(X), b.weight([1, 4, 1, 1])];
        let caches = vec![b.cache([16, 8, 1, 1]), b.cache([16, 8, 1, 1])];
        let ids = b.leaf(LeafKind::Input, DType::I32, [4, 1, 1, 1]);
        Self { b, values, weights, caches, ids }
    }

    fn value(&self, pick: u8) -> TensorId {
        // The newest is picked most, so that chains arise.
        let back = usize::from(pick.saturating_sub(100) / 8) % self.values.len();
        self.values[self.values.len() - 1 - back]
    }

    /// The result of a step; `None` if its sources do not fit it.
    fn add(&mut self, step: &Step) -> Option<TensorId> {
        let [first, second, third] = step.picks;
        let (x, y) = (self.value(first), self.value(second));
        let weight = self.weights[usize::from(third) % self.weights.len()];
        let cache = self.caches[usize::from(third) % self.caches.len()];
        let dense = |graph: &Graph, id: TensorId| graph.tensor(id).layout().elements();
        let apart = self.b.graph.root(x) != self.b.graph.root(y);
        let push = |b: &mut Rig, op: Op, sources: &[TensorId]| {
            let sources: Vec<_> = sources.iter().copied().map(Some).collect();
            b.graph.push(op, &sources).ok()
        };
        let b = &mut self.b;
        match step.op {
            0 => push(b, Op::Add, &[x, y]),
            1 => push(b, Op::Add, &[x, weight]),
            2 => push(b, Op::Mul, &[x, weight]),
            3 => push(b, Op::Mul, &[x, y]),
            4 => push(b, Op::RmsNorm { eps: f32::from(third) }, &[x]),
            5 => push(b, Op::Norm { eps: 1e-5 }, &[x]),
            6 => {
                let [n0, n1, ..] = b.graph.tensor(x).ne();
                let nb = b.graph.tensor(x).nb();
                let skipped = usize::from(third) % n1.max(1);
                push(b, Op::View { ne: [n0, n1 - skipped, 1, 1], nb, offset: skipped * nb[1] }, &[x])
            }
            7 => {
                let elements = dense(&b.graph, x);
                push(b, Op::Reshape { ne: [elements / 4, 4, 1, 1] }, &[x])
            }
            8 => push(b, Op::Transpose, &[x]),
            9 => {
                let ne = b.graph.tensor(x).ne();
                push(b, Op::Cont { ne }, &[x])
            }
            10 => push(b, Op::SetRows, &[x, self.ids, cache]),
            11 if apart => push(b, Op::SetRows, &[x, self.ids, y]),
            12 => {
                let ne = b.graph.tensor(x).ne();
                let nb = [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1]];
                let view = push(b, Op::View { ne, nb, offset: 4 * usize::from(third % 8) }, &[cache])?;
                push(b, Op::Cpy, &[x, view])
            }
            13 if apart => push(b, Op::Cpy, &[x, y]),
            14 => push(b, Op::Scale { scale: 2.0, bias: 1.0, in_place: false }, &[x]),
            15 => push(b, Op::Scale { scale: 2.0, bias: 1.0, in_place: true }, &[x]),
            16 => push(b, Op::Unary(Unary::Silu), &[x]),
            17 => push(b, Op::GetRows, &[cache, self.ids]),
            18 => self.snake(x),
            19 => self.delta_net(x, cache, third),
            20 => self.norm(x, step.picks),
            21 => self.sum(x, step.picks),
            _ => None,
        }
    }

    /// A norm with a factor and perhaps a shift, each a weight or a value.
    fn norm(&mut self, x: TensorId, [_, factor, shift]: [u8; 3]) -> Option<TensorId> {
        let operand = |pool: &Self, pick: u8| match usize::from(pick % 8) {
            at @ 0..4 => pool.weights[at],
            _ => pool.value(pick),
        };
        let (factor, second) = (operand(self, factor), operand(self, shift));
        let normed = self.b.graph.push(Op::RmsNorm { eps: 1e-5 }, &[Some(x)]).ok()?;
        let scaled = self.b.graph.push(Op::Mul, &[Some(normed), Some(factor)]).ok()?;
        if shift < 128 {
            return Some(scaled);
        }
        self.b.graph.push(Op::Add, &[Some(scaled), Some(second)]).ok()
    }

    /// A sum of up to eight terms, most of them of one kind.
    fn sum(&mut self, mut x: TensorId, [_, length, kind]: [u8; 3]) -> Option<TensorId> {
        for at in 0..2 + length % 7 {
            let addend = match (kind >> (at % 8)) & 1 {
                0 => self.weights[2],
                _ => self.caches[0],
            };
            let addend =
                self.b.graph.push(Op::View { ne: X, nb: [4, 64, 256, 256], offset: 0 }, &[Some(addend)]).ok()?;
            x = self.b.graph.push(Op::Add, &[Some(x), Some(addend)]).ok()?;
        }
        Some(x)
    }

    fn snake(&mut self, x: TensorId) -> Option<TensorId> {
        let column = Some(self.weights[3]);
        let scaled = self.b.graph.push(Op::Mul, &[Some(x), column]).ok()?;
        let sine = self.b.graph.push(Op::Sin, &[Some(scaled)]).ok()?;
        let square = self.b.graph.push(Op::Sqr, &[Some(sine)]).ok()?;
        let weighted = self.b.graph.push(Op::Mul, &[Some(square), column]).ok()?;
        self.b.graph.push(Op::Add, &[Some(x), Some(weighted)]).ok()
    }

    /// A delta net on parts of `x`, with the copy of its snapshot; the state may be read from the same cache.
    fn delta_net(&mut self, x: TensorId, cache: TensorId, pick: u8) -> Option<TensorId> {
        let b = &mut self.b;
        let dense = b.graph.push(Op::Cont { ne: [64, 1, 1, 1] }, &[Some(x)]).ok()?;
        let parts = [[2, 2, 2, 1], [2, 2, 2, 1], [2, 2, 2, 1], [1, 2, 2, 1], [1, 2, 2, 1]];
        let mut sources: Vec<TensorId> = parts.iter().enumerate().map(|(at, &ne)| b.view(dense, ne, 32 * at)).collect();
        sources.push(b.view(cache, [2, 2, 2, 1], 16 * usize::from(pick % 8)));
        let gdn = b.op(Op::GatedDeltaNet { snapshots: 1 }, &sources);
        let tail = b.view(gdn, [8, 1, 1, 1], 32);
        let destination = b.view(cache, [8, 1, 1, 1], 32 * usize::from(pick / 64));
        let cpy = b.op(Op::Cpy, &[tail, destination]);
        let rows = b.view(gdn, [4, 2, 1, 1], 0);
        let read = b.op(Op::Sqr, &[rows]);
        b.graph.expand(cpy).ok()?;
        Some(read)
    }
}

fn random(steps: &[Step]) -> Graph {
    let mut pool = Pool::new();
    let mut late = Vec::new();
    for step in steps {
        let Some(id) = pool.add(step) else { continue };
        pool.values.push(id);
        if step.output {
            pool.b.graph.set_output(id).expect("a tensor");
        }
        if step.late {
            late.push(id);
        } else {
            pool.b.graph.expand(id).expect("a tensor");
        }
    }
    late.into_iter().for_each(|id| pool.b.graph.expand(id).expect("a tensor"));
    pool.b.graph
}

/// A plan that holds what it must; `None` where the graph itself asks for overlapping memory.
fn checked(graph: &Graph, limits: &Limits, options: &PlanOptions) -> Option<Plan> {
    match plan(graph, &leaves(graph), limits, options) {
        Ok(plan) => {
            invariants::check(graph, &plan, limits);
            Some(plan)
        }
        Err(PlanError::Overlap { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn nodes(plan: &Plan) -> Vec<(Option<String>, Vec<TensorId>)> {
    plan.groups.iter().map(|group| (group.fusion.map(|row| row.label()), group.nodes.clone())).collect()
}

fn signature(graph: &Graph, options: &PlanOptions) -> Vec<u8> {
    let mut signature = Signature::default();
    signature.describe(graph, &leaves(graph), &LIMITS, options);
    signature.bytes().to_vec()
}

/// What a plan can depend on.
fn described(graph: &Graph) -> (usize, Vec<(TensorId, Tensor)>) {
    let expanded = graph.leaves().iter().chain(graph.nodes());
    (graph.tensors().len(), expanded.map(|&id| (id, graph.tensor(id).clone())).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn plans_hold_what_they_must(steps in steps()) {
        let graph = random(&steps);
        let few = Limits { max_buffer_bytes: 1024, alignment: 4, max_bindings: 3 };
        for options in [
            PlanOptions::default(),
            PlanOptions { matcher: Matcher::new(FusionSet::Published12), optimize: false, chunks: 3, ..PlanOptions::default() },
            PlanOptions { concurrency: false, ..PlanOptions::default() },
        ] {
            let first = checked(&graph, &LIMITS, &options);
            let second = checked(&graph, &LIMITS, &options);
            prop_assert_eq!(first.as_ref().map(nodes), second.as_ref().map(nodes), "planning is deterministic");
            prop_assert_eq!(first.map(|p| p.placement), second.map(|p| p.placement));
            checked(&graph, &few, &options);
        }
    }

    #[test]
    fn without_fusion_every_node_is_alone(steps in steps(), optimize in any::<bool>()) {
        let graph = random(&steps);
        if let Some(plan) = checked(&graph, &LIMITS, &PlanOptions { optimize, ..plain() }) {
            prop_assert!(plan.groups.iter().all(|group| group.fusion.is_none() && group.nodes.len() == 1));
            prop_assert_eq!(plan.fusions().count(), 0);
        }
    }

    #[test]
    fn chunks_do_not_change_groups(steps in steps(), chunks in 0usize..20) {
        let graph = random(&steps);
        let one = checked(&graph, &LIMITS, &PlanOptions::default());
        let many = checked(&graph, &LIMITS, &PlanOptions { chunks, ..PlanOptions::default() });
        prop_assert_eq!(one.map(|plan| nodes(&plan)), many.map(|plan| nodes(&plan)));
    }

    #[test]
    fn signatures_tell_graphs_apart(steps in steps(), other in step(), at in any::<prop::sample::Index>()) {
        let mut changed = steps.clone();
        let at = at.index(steps.len());
        changed[at] = other;
        let (one, two) = (random(&steps), random(&changed));
        let options = PlanOptions::default();
        prop_assert_eq!(signature(&one, &options), signature(&random(&steps), &options));
        prop_assert_eq!(signature(&one, &options) == signature(&two, &options), described(&one) == described(&two));
        prop_assert_ne!(signature(&one, &options), signature(&one, &plain()));
    }
}
