//! What every operation computes, from its definition, in f64 and as naively as possible; and how far off a device may be.

mod filling;
mod pointwise;
mod reduce;
mod rope;
mod train;

use crate::numbers::{Nd, indices};
pub use rope::angle;
use std::collections::HashMap;
use wgfuse::graph::{DType, FlashAttn, Graph, Layout, Op, OpKind, SortOrder, Tensor, TensorId, ViewOf};

/// What a result may be off by.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Of each element, in units of its own size plus the result's root mean square or 1, whichever is less.
    pub each: f64,
    /// Of all elements: the squared error over the square.
    pub nmse: f64,
}

impl Tolerance {
    pub const EXACT: Self = Self::new(0.0, 0.0);

    pub const fn new(each: f64, nmse: f64) -> Self {
        Self { each, nmse }
    }

    pub const fn or(self, other: Self) -> Self {
        Self { each: self.each.max(other.each), nmse: self.nmse.max(other.nmse) }
    }

    const fn and(self, other: Self) -> Self {
        Self { each: self.each + other.each, nmse: self.nmse + other.nmse }
    }

    /// What rounding to a type costs.
    pub const fn of_type(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::new(1e-6, 1e-13),
            DType::F16 => Self::new(1.5e-3, 2e-7),
            DType::BF16 => Self::new(1.2e-2, 1.5e-5),
            DType::I32 | DType::I64 | DType::Block(_) => Self::EXACT,
        }
    }

    /// What a result of this type may be off by when its sources are exact.
    const fn of(kind: OpKind, dtype: DType) -> Self {
        let computed = match kind {
            OpKind::None | OpKind::View | OpKind::Reshape | OpKind::Permute | OpKind::Transpose => return Self::EXACT,
            OpKind::GetRows | OpKind::SetRows | OpKind::Cpy | OpKind::Cont => return Self::EXACT,
            OpKind::Repeat | OpKind::Concat | OpKind::Argsort | OpKind::Clamp => return Self::EXACT,
            OpKind::Argmax | OpKind::TopK | OpKind::CountEqual => return Self::EXACT,
            OpKind::Sum | OpKind::Mean | OpKind::CumSum | OpKind::RepeatBack | OpKind::GetRowsBack => {
                Self::new(5e-6, 1e-12)
            }
            OpKind::L2Norm | OpKind::GroupNorm | OpKind::RmsNormBack => Self::new(5e-6, 1e-12),
            OpKind::SoftMaxBack | OpKind::CrossEntropyLoss | OpKind::CrossEntropyLossBack => Self::new(1e-5, 1e-11),
            OpKind::OptStepAdamW | OpKind::OptStepSgd => Self::new(1e-5, 1e-11),
            OpKind::OutProd | OpKind::SolveTri => Self::new(1e-4, 1e-12),
            OpKind::Add | OpKind::Sub | OpKind::Mul | OpKind::Div | OpKind::Scale | OpKind::Sqr => {
                return Self::of_type(dtype);
            }
            OpKind::Norm | OpKind::RmsNorm | OpKind::SumRows | OpKind::SsmConv => Self::new(5e-6, 1e-12),
            OpKind::Abs | OpKind::Sgn | OpKind::Neg | OpKind::Step | OpKind::Relu => return Self::EXACT,
            OpKind::Floor | OpKind::Ceil | OpKind::Round | OpKind::Trunc => return Self::EXACT,
            OpKind::Dup | OpKind::Set | OpKind::Fill | OpKind::Tri | OpKind::Diag => return Self::EXACT,
            OpKind::DiagMaskInf | OpKind::DiagMaskZero => return Self::EXACT,
            OpKind::AddId | OpKind::Acc | OpKind::Arange | OpKind::LeakyRelu | OpKind::Reglu => {
                return Self::of_type(dtype);
            }
            OpKind::Sqrt | OpKind::HardSwish | OpKind::HardSigmoid => Self::new(2e-6, 1e-12),
            OpKind::Exp | OpKind::Expm1 | OpKind::Elu | OpKind::Xielu | OpKind::GeluErf => Self::new(5e-6, 1e-11),
            OpKind::Sin | OpKind::Cos | OpKind::Log | OpKind::Tanh | OpKind::Sigmoid => Self::new(1e-5, 1e-11),
            OpKind::Gelu | OpKind::GeluQuick | OpKind::Silu | OpKind::Softplus => Self::new(1e-5, 1e-11),
            OpKind::Geglu | OpKind::Swiglu | OpKind::SwigluOai | OpKind::SwigluClamp => Self::new(1e-5, 1e-11),
            OpKind::GegluErf | OpKind::GegluQuick | OpKind::SiluBack | OpKind::SoftMax => Self::new(1e-5, 1e-11),
            // An angle of a thousand is an f32 number.
            OpKind::TimestepEmbedding => Self::new(2e-4, 1e-9),
            OpKind::MulMat | OpKind::MulMatId | OpKind::GatedDeltaNet => Self::new(1e-4, 1e-12),
            OpKind::FlashAttn => Self::new(3e-5, 1e-11),
            // An angle of a few hundred is an f32 number.
            OpKind::Rope | OpKind::RopeBack => Self::new(6e-5, 1e-10),
        };
        computed.or(Self::of_type(dtype))
    }

    /// What a tensor may be off by, given what it was computed from.
    pub fn of_tensor(graph: &Graph, id: TensorId) -> Self {
        let mut of: HashMap<TensorId, Self> = HashMap::new();
        let known = |of: &HashMap<TensorId, Self>, id| of.get(&id).copied().unwrap_or(Self::EXACT);
        for &node in graph.nodes() {
            let tensor = graph.tensor(node);
            let sources = tensor.sources().fold(Self::EXACT, |all, source| all.or(known(&of, source)));
            let all = sources.and(Self::of(tensor.kind(), tensor.dtype()));
            of.insert(node, all);
            // What is written into a leaf makes that leaf as inexact.
            for written in [node].into_iter().chain(updated(tensor).map(|(_, source)| source)) {
                let root = graph.root(written);
                of.insert(root, known(&of, root).or(all));
            }
        }
        known(&of, id)
    }
}

/// The elements of every tensor of a graph, by the tensors that own the memory.
pub struct Memory<'a> {
    graph: &'a Graph,
    roots: HashMap<TensorId, Vec<f64>>,
}

impl<'a> Memory<'a> {
    /// Memory with the leaves' contents. Whatever is not written is NaN.
    pub fn new(graph: &'a Graph, contents: impl Fn(TensorId) -> Vec<f64>) -> Self {
        let roots = graph.leaves().iter().map(|&id| (id, contents(id))).collect();
        Self { graph, roots }
    }

    pub fn read(&self, id: TensorId) -> Nd {
        let layout = self.graph.tensor(id).layout();
        let (root, start) = self.locate(id);
        let elements = &self.roots[&root];
        Nd::from_fn(layout.ne, |at| elements[start + element(layout, at)])
    }

    fn locate(&self, id: TensorId) -> (TensorId, usize) {
        let tensor = self.graph.tensor(id);
        let ViewOf { root, offset } = tensor.view().unwrap_or(ViewOf { root: id, offset: 0 });
        (root, offset / tensor.dtype().block_bytes() * tensor.dtype().block_size())
    }

    /// Runs every node, in the builder's order.
    pub fn run(mut self) -> Self {
        for &id in self.graph.nodes() {
            let tensor = self.graph.tensor(id);
            if tensor.kind().is_view() {
                continue;
            }
            let sources: Vec<Option<Nd>> =
                tensor.source_slots().iter().map(|source| source.map(|id| self.read(id))).collect();
            let result = evaluate(tensor, &sources);
            self.write(id, result);
            for (slot, source) in updated(tensor) {
                self.write(source, train::moment(slot, &sources));
            }
        }
        self
    }

    fn write(&mut self, id: TensorId, values: Nd) {
        let (root, start) = self.locate(id);
        let size = self.graph.tensor(root).layout().elements();
        let elements = self.roots.entry(root).or_insert_with(|| vec![f64::NAN; size]);
        for (at, value) in indices(values.ne).zip(values.all) {
            elements[start + element(self.graph.tensor(id).layout(), at)] = value;
        }
    }
}

/// The moments that AdamW updates, and their slots.
fn updated(tensor: &Tensor) -> impl Iterator<Item = (usize, TensorId)> {
    let slots: &[usize] = if tensor.kind() == OpKind::OptStepAdamW { &[2, 3] } else { &[] };
    slots.iter().map(|&slot| (slot, tensor.src(slot).expect("a moment")))
}

/// Elements from the start of a tensor to one of its elements.
fn element(layout: &Layout, at: [usize; 4]) -> usize {
    let Layout { dtype, ne: _, nb } = *layout;
    let block = at[0] / dtype.block_size() * nb[0] + (1..4).map(|dim| at[dim] * nb[dim]).sum::<usize>();
    block / dtype.block_bytes() * dtype.block_size() + at[0] % dtype.block_size()
}

fn evaluate(tensor: &Tensor, sources: &[Option<Nd>]) -> Nd {
    let source = |index: usize| sources[index].as_ref().expect("a source");
    let optional = |index: usize| sources[index].as_ref();
    let ne = tensor.ne();
    let map = |f: &dyn Fn(f64) -> f64| Nd { ne, all: source(0).all.iter().map(|&x| f(x)).collect() };
    let binary = |f: fn(f64, f64) -> f64| Nd::from_fn(ne, |at| f(source(0).at(at), source(1).wrapped(at)));
    match *tensor.op() {
        Op::None | Op::View { .. } | Op::Reshape { .. } | Op::Permute { .. } | Op::Transpose => {
            panic!("nothing is computed")
        }
        Op::GetRows => Nd::from_fn(ne, |[i0, i1, i2, i3]| {
            let row = source(1).at([i1, i2, i3, 0]);
            chosen(row, source(0).ne[1]).map_or(0.0, |row| source(0).at([i0, row, i2, i3]))
        }),
        Op::SetRows => set_rows(source(0), source(1), source(2).clone()),
        Op::Cpy | Op::Cont { .. } => Nd { ne, all: source(0).all.clone() },
        Op::MulMat { .. } => {
            let (a, b) = (source(0), source(1));
            Nd::from_fn(ne, |[row, i1, i2, i3]| {
                let plane = [i2 / (b.ne[2] / a.ne[2]), i3 / (b.ne[3] / a.ne[3])];
                (0..a.ne[0]).map(|k| a.at([k, row, plane[0], plane[1]]) * b.at([k, i1, i2, i3])).sum()
            })
        }
        Op::MulMatId { .. } => {
            let [a, b, ids] = [0, 1, 2].map(source);
            Nd::from_fn(ne, |[row, slot, token, _]| {
                let Some(matrix) = chosen(ids.at([slot, token, 0, 0]), a.ne[2]) else { return 0.0 };
                (0..a.ne[0]).map(|k| a.at([k, row, matrix, 0]) * b.at([k, slot % b.ne[1], token, 0])).sum()
            })
        }
        Op::Add => binary(|a, b| a + b),
        Op::Sub => binary(|a, b| a - b),
        Op::Mul => binary(|a, b| a * b),
        Op::Div => binary(|a, b| a / b),
        Op::Scale { scale, bias, in_place: _ } => map(&|x| x * f64::from(scale) + f64::from(bias)),
        Op::Repeat { .. } => Nd::from_fn(ne, |at| source(0).wrapped(at)),
        Op::Concat { dim } => {
            let dim = usize::from(dim);
            let split = source(0).ne[dim];
            Nd::from_fn(ne, |mut at| {
                if at[dim] < split {
                    return source(0).at(at);
                }
                at[dim] -= split;
                source(1).at(at)
            })
        }
        Op::Norm { eps } => by_row(source(0), |row, _| normalised(row, true, eps.into())),
        Op::RmsNorm { eps } => by_row(source(0), |row, _| normalised(row, false, eps.into())),
        Op::SoftMax { scale, max_bias } => by_row(source(0), |row, [_, i1, i2, i3]| {
            let slope = slope(max_bias.into(), i2, ne[2]);
            let bias = |i0| {
                let masked = |mask: &Nd| slope * mask.at([i0, i1, i2 % mask.ne[2], i3 % mask.ne[3]]);
                optional(1).map_or(0.0, masked)
            };
            let scores: Vec<f64> = row.iter().enumerate().map(|(i0, x)| x * f64::from(scale) + bias(i0)).collect();
            let seen: Vec<bool> = (0..row.len()).map(|i0| bias(i0) != f64::NEG_INFINITY).collect();
            soft_max(&scores, &seen, optional(2).map(|sinks| sinks.all[i2]))
        }),
        Op::Rope(rope) => rope::rotated(&rope, source(0), source(1), optional(2), 1.0),
        Op::RopeBack(rope) => rope::rotated(&rope, source(0), source(1), optional(2), -1.0),
        Op::FlashAttn(attn) => attention(&attn, [0, 1, 2].map(source), optional(3), optional(4), ne),
        Op::SumRows => {
            Nd::from_fn(ne, |[_, i1, i2, i3]| (0..source(0).ne[0]).map(|i0| source(0).at([i0, i1, i2, i3])).sum())
        }
        Op::Argsort { order } => by_row(source(0), |row, _| sorted(row, order)),
        Op::TopK { k } => reduce::top_k(source(0), k, ne),
        Op::Argmax => reduce::argmax(source(0), ne),
        Op::Sum => Nd { ne, all: vec![source(0).all.iter().sum()] },
        Op::Mean => reduce::mean(source(0), ne),
        Op::CumSum => reduce::cumsum(source(0)),
        Op::CountEqual => reduce::count_equal(source(0), source(1)),
        Op::L2Norm { eps } => reduce::l2_norm(source(0), eps.into()),
        Op::GroupNorm { groups, eps } => reduce::group_norm(source(0), groups as usize, eps.into()),
        Op::RepeatBack { .. } => train::repeat_back(source(0), ne),
        Op::GetRowsBack { .. } => train::get_rows_back(source(0), source(1), ne),
        Op::RmsNormBack { eps } => train::rms_norm_back(source(0), source(1), eps.into()),
        Op::SoftMaxBack { scale, max_bias: _ } => train::soft_max_back(source(0), source(1), scale.into()),
        Op::CrossEntropyLoss => train::cross_entropy_loss(source(0), source(1)),
        Op::CrossEntropyLossBack => train::cross_entropy_loss_back([0, 1, 2].map(source)),
        Op::OptStepAdamW => train::adamw([0, 1, 2, 3, 4].map(source)),
        Op::OptStepSgd => train::sgd([0, 1, 2].map(source)),
        Op::OutProd => train::out_prod(source(0), source(1), ne),
        Op::SolveTri => train::solve_tri(source(0), source(1)),
        // Of contradicting bounds the lower one wins; NaN stays NaN.
        Op::Clamp { min, max } => map(&|x| if x.is_nan() { x } else { x.min(max.into()).max(min.into()) }),
        Op::Sqr => map(&|x| x * x),
        Op::Sin => map(&f64::sin),
        Op::Sqrt => map(&f64::sqrt),
        Op::Cos => map(&f64::cos),
        Op::Log => map(&f64::ln),
        Op::LeakyRelu { negative_slope } => map(&|x| pointwise::leaky_relu(x, negative_slope.into())),
        Op::Xielu(xielu) => map(&|x| pointwise::xielu(x, xielu)),
        Op::Unary(f) => map(&|x| pointwise::unary(f, x)),
        Op::SiluBack => binary(pointwise::silu_back),
        Op::AddId => pointwise::add_id([0, 1, 2].map(source)),
        Op::Dup => source(0).clone(),
        Op::Acc { window, in_place: _ } => filling::changed(source(0), source(1), window, |old, new| old + new),
        Op::Set { window, in_place: _ } => filling::changed(source(0), source(1), window, |_, new| new),
        Op::Fill { value, in_place: _ } => Nd::from_fn(ne, |_| value.into()),
        Op::Arange { start, stop, step } => filling::arange(start, stop, step),
        Op::TimestepEmbedding { dim, max_period } => filling::timestep_embedding(source(0), dim as usize, max_period),
        Op::Tri { part } => filling::tri(source(0), part),
        Op::Diag => filling::diag(source(0), ne),
        Op::DiagMaskInf { n_past, in_place: _ } => filling::diag_mask(source(0), n_past, f64::NEG_INFINITY),
        Op::DiagMaskZero { n_past, in_place: _ } => filling::diag_mask(source(0), n_past, 0.0),
        Op::Glu { glu, swapped } => Nd::from_fn(ne, |at| {
            let half = [at[0] + ne[0], at[1], at[2], at[3]];
            let [first, second] = match optional(1) {
                Some(b) => [source(0).at(at), b.at(at)],
                None => [source(0).at(at), source(0).at(half)],
            };
            let swapped = swapped && optional(1).is_none();
            if swapped { pointwise::gated(glu, second, first) } else { pointwise::gated(glu, first, second) }
        }),
        Op::SsmConv => Nd::from_fn(ne, |[channel, token, sequence, _]| {
            let (x, c) = (source(0), source(1));
            (0..c.ne[0]).map(|w| x.at([token + w, channel, sequence, 0]) * c.at([w, channel, 0, 0])).sum()
        }),
        Op::GatedDeltaNet { snapshots } => delta_net([0, 1, 2, 3, 4, 5].map(source), snapshots as usize, ne),
    }
}

/// An index that is one of `0..count`.
fn chosen(index: f64, count: usize) -> Option<usize> {
    (index >= 0.0 && index < count as f64).then_some(index as usize)
}

fn by_row(a: &Nd, f: impl Fn(&[f64], [usize; 4]) -> Vec<f64>) -> Nd {
    let rows = indices([1, a.ne[1], a.ne[2], a.ne[3]]);
    let row = |at: [usize; 4]| (0..a.ne[0]).map(|i0| a.at([i0, at[1], at[2], at[3]])).collect::<Vec<_>>();
    Nd { ne: a.ne, all: rows.flat_map(|at| f(&row(at), at)).collect() }
}

fn set_rows(values: &Nd, ids: &Nd, mut destination: Nd) -> Nd {
    let ne = destination.ne;
    for at in indices(values.ne) {
        let row = ids.at([at[1], at[2] % ids.ne[1], at[3] % ids.ne[2], 0]);
        if let Some(row) = chosen(row, ne[1]) {
            destination.all[((at[3] * ne[2] + at[2]) * ne[1] + row) * ne[0] + at[0]] = values.at(at);
        }
    }
    destination
}

fn normalised(row: &[f64], centred: bool, eps: f64) -> Vec<f64> {
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / row.len() as f64;
    let centre = if centred { mean(&mut row.iter().copied()) } else { 0.0 };
    let variance = mean(&mut row.iter().map(|x| (x - centre) * (x - centre)));
    row.iter().map(|x| (x - centre) / (variance + eps).sqrt()).collect()
}

/// NaNs of either sign are equal to each other and above all numbers, as are both zeros to each other.
fn sorted(row: &[f64], order: SortOrder) -> Vec<f64> {
    let key = |i: usize| if row[i].is_nan() { f64::NAN.abs() } else { row[i] + 0.0 };
    let mut order_of: Vec<usize> = (0..row.len()).collect();
    order_of.sort_by(|&a, &b| match order {
        SortOrder::Ascending => key(a).total_cmp(&key(b)),
        SortOrder::Descending => key(b).total_cmp(&key(a)),
    });
    order_of.into_iter().map(|i| i as f64).collect()
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

#[test]
fn alibi_slopes_are_the_published_ones() {
    // Eight heads: 1/2, 1/4, … 1/256; twelve: those, then 2^-0.5, 2^-1.5, 2^-2.5, 2^-3.5.
    for (head, heads, expected) in [(0, 8, -1.0), (1, 8, -2.0), (7, 8, -8.0), (8, 12, -0.5), (11, 12, -3.5)] {
        assert!((slope(8.0, head, heads).log2() - expected).abs() < 1e-12);
    }
    assert_eq!(slope(0.0, 3, 6), 1.0);
}

/// What is not seen counts for nothing, whatever its score is; without anything seen and a sink, all is zero.
fn soft_max(scores: &[f64], seen: &[bool], sink: Option<f64>) -> Vec<f64> {
    let visible = scores.iter().zip(seen).filter(|(_, seen)| **seen).map(|(score, _)| *score);
    let max = visible.chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let weight = |(score, seen): (&f64, &bool)| if *seen { (score - max).exp() } else { 0.0 };
    let weights: Vec<f64> = scores.iter().zip(seen).map(weight).collect();
    let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - max).exp());
    weights.into_iter().map(|weight| if sum == 0.0 { 0.0 } else { weight / sum }).collect()
}

fn attention(attn: &FlashAttn, [q, k, v]: [&Nd; 3], mask: Option<&Nd>, sinks: Option<&Nd>, ne: [usize; 4]) -> Nd {
    let ([d, tokens, heads, batch], [_, cells, heads_kv, batch_kv]) = (q.ne, k.ne);
    let cap = f64::from(attn.logit_softcap);
    let mut all = Vec::new();
    for [head, token, b, _] in indices([heads, tokens, batch, 1]) {
        let (head_kv, b_kv) = (head / (heads / heads_kv), b / (batch / batch_kv));
        let bias = |cell| mask.map_or(0.0, |mask| mask.at([cell, token, head % mask.ne[2], b % mask.ne[3]]));
        let score = |cell| {
            let dot: f64 = (0..d).map(|i| q.at([i, token, head, b]) * k.at([i, cell, head_kv, b_kv])).sum();
            let score = dot * f64::from(attn.scale);
            let score = if cap == 0.0 { score } else { cap * (score / cap).tanh() };
            score + slope(attn.max_bias.into(), head, heads) * bias(cell)
        };
        let scores: Vec<f64> = (0..cells).map(score).collect();
        let seen: Vec<bool> = (0..cells).map(|cell| bias(cell) != f64::NEG_INFINITY).collect();
        let weights = soft_max(&scores, &seen, sinks.map(|sinks| sinks.all[head]));
        let value = |i, cell| if weights[cell] == 0.0 { 0.0 } else { weights[cell] * v.at([i, cell, head_kv, b_kv]) };
        all.extend((0..ne[0]).map(|i| (0..cells).map(|cell| value(i, cell)).sum::<f64>()));
    }
    Nd { ne, all }
}

/// Slots of states that there was no token for are left as they were.
fn delta_net([q, k, v, g, beta, state]: [&Nd; 6], snapshots: usize, ne: [usize; 4]) -> Nd {
    let [size, heads, tokens, batch] = v.ne;
    let (attention, snapshot) = (size * heads * tokens * batch, size * size * heads * batch);
    let mut all = vec![f64::NAN; attention + snapshot * snapshots];
    for [head, b, ..] in indices([heads, batch, 1, 1]) {
        let mut memory: Vec<f64> = indices([size, size, 1, 1]).map(|[j, i, ..]| state.at([j, i, head, b])).collect();
        for token in 0..tokens {
            let channel = |source: &Nd, j| source.at([j, head % source.ne[1], token, b]);
            for i in 0..size {
                let row = &mut memory[i * size..][..size];
                row.iter_mut().enumerate().for_each(|(j, cell)| *cell *= g.wrapped([j, head, token, b]).exp());
                let recalled: f64 = row.iter().enumerate().map(|(j, cell)| cell * channel(k, j)).sum();
                let correction = (v.at([i, head, token, b]) - recalled) * beta.at([0, head, token, b]);
                row.iter_mut().enumerate().for_each(|(j, cell)| *cell += channel(k, j) * correction);
                let read: f64 = row.iter().enumerate().map(|(j, cell)| cell * channel(q, j)).sum();
                all[((b * tokens + token) * heads + head) * size + i] = read / (size as f64).sqrt();
            }
            let age = tokens - 1 - token;
            if age < snapshots {
                all[attention + age * snapshot + (b * heads + head) * size * size..][..size * size]
                    .copy_from_slice(&memory);
            }
        }
    }
    Nd { ne, all }
}
