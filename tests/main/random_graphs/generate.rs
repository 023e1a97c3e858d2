//! Graphs of every operation, with chains that fuse and chains that nearly do.
//!
//! A graph follows from a seed and a number of steps: with fewer steps it is a beginning of the longer one, so that a
//! failure is cut down by trying fewer. Sizes come from a small pool, so that kernels are compiled once for many graphs.

use crate::numbers::Random;
use std::ops::Range;
use wgfuse::graph::{
    BufferClass, DType, FlashAttn, Glu, Graph, GraphError, Layout, LeafKind, Op, Precision, Rope, RopeMode, SortOrder,
    TensorId, Unary,
};

type Ne = [usize; 4];

/// What a leaf is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Numbers in this range.
    Uniform(f32, f32),
    /// The numbers of each row are far from each other, so that sorting them does not depend on rounding.
    Apart,
    /// Indices below `count`; those in one row differ.
    Indices { count: usize },
    /// Indices below `count`, in rising order.
    Positions { count: usize },
    /// 0, −∞, or a small bias.
    Mask,
}

/// A leaf and its contents.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    pub id: TensorId,
    pub kind: LeafKind,
    pub fill: Fill,
}

/// A tensor that steps may read.
#[derive(Clone, Copy, Debug)]
struct Val {
    id: TensorId,
    /// No element is larger, roughly.
    bound: f32,
}

/// A random graph.
pub struct Generated {
    pub graph: Graph,
    pub leaves: Vec<Leaf>,
}

const ELEMENTS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Caches hold numbers up to this.
const CACHE_BOUND: f32 = 8.0;

/// The rows of caches.
const CELLS: usize = 24;

struct Generator {
    random: Random,
    graph: Graph,
    leaves: Vec<Leaf>,
    values: Vec<Val>,
    late: Vec<TensorId>,
    width: usize,
    tokens: usize,
}

/// The graph of a seed after so many steps.
pub fn generate(seed: u64, steps: usize) -> Generated {
    let mut random = Random(seed);
    let width = [16, 32, 48, 272][random.word() as usize % 4];
    let tokens = [1, 4, 12][random.word() as usize % 3];
    let mut this = Generator {
        random,
        graph: Graph::new(),
        leaves: Vec::new(),
        values: Vec::new(),
        late: Vec::new(),
        width,
        tokens,
    };
    for _ in 0..2 {
        let id = this.new_leaf(LeafKind::Input, DType::F32, this.main(), Fill::Uniform(-2.0, 2.0));
        this.values.push(Val { id, bound: 2.0 });
    }
    for _ in 0..steps {
        if let Err(error) = this.step() {
            panic!("seed {seed}: {error}");
        }
    }
    this.finish()
}

impl Generator {
    fn below(&mut self, count: usize) -> usize {
        (self.random.word() >> 33) as usize % count
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn among<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn main(&self) -> Ne {
        [self.width, self.tokens, 1, 1]
    }

    fn layout(&self, id: TensorId) -> Layout {
        *self.graph.tensor(id).layout()
    }

    fn new_leaf(&mut self, kind: LeafKind, dtype: DType, ne: Ne, fill: Fill) -> TensorId {
        let name = format!("leaf {}", self.leaves.len());
        let id = self.graph.leaf(name, kind, dtype, ne).expect("a small leaf");
        self.leaves.push(Leaf { id, kind, fill });
        id
    }

    /// A leaf, often one that is there already.
    fn leaf(&mut self, kind: LeafKind, dtype: DType, ne: Ne, fill: Fill) -> TensorId {
        let like = |leaf: &Leaf| {
            let layout = self.graph.tensor(leaf.id).layout();
            (leaf.kind == kind && leaf.fill == fill && layout.dtype == dtype && layout.ne == ne).then_some(leaf.id)
        };
        let known: Vec<TensorId> = self.leaves.iter().filter_map(like).collect();
        if !known.is_empty() && self.chance(50) {
            return self.among(&known);
        }
        self.new_leaf(kind, dtype, ne, fill)
    }

    fn weight(&mut self, dtype: DType, ne: Ne) -> TensorId {
        self.leaf(LeafKind::Weight, dtype, ne, Fill::Uniform(-1.5, 1.5))
    }

    fn input(&mut self, dtype: DType, ne: Ne) -> TensorId {
        self.leaf(LeafKind::Input, dtype, ne, Fill::Uniform(-2.0, 2.0))
    }

    fn cache(&mut self, dtype: DType) -> TensorId {
        let ne = [self.width, CELLS, 1, 1];
        self.leaf(LeafKind::Cache, dtype, ne, Fill::Uniform(-1.0, 1.0))
    }

    /// Adds an operation whose result later steps may read.
    fn emit(&mut self, op: Op, sources: &[TensorId], bound: f32) -> Result<TensorId, GraphError> {
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        let id = self.graph.push(op, &sources)?;
        self.keep(id, bound)?;
        Ok(id)
    }

    fn keep(&mut self, id: TensorId, bound: f32) -> Result<(), GraphError> {
        self.values.push(Val { id, bound });
        if self.chance(8) {
            self.graph.set_output(id)?;
        }
        if self.chance(15) {
            self.late.push(id);
            return Ok(());
        }
        self.graph.expand(id)
    }

    /// Any value; the newest most often, so that chains arise.
    fn value(&mut self) -> Val {
        let count = self.values.len();
        let back = if self.chance(60) { 0 } else { self.below(count.min(12)) };
        self.values[count - 1 - back]
    }

    /// A value of floating-point numbers with none too large.
    fn float(&mut self) -> Val {
        let value = self.value();
        let fits = self.graph.tensor(value.id).dtype().is_float() && value.bound <= 16.0;
        if fits { value } else { Val { id: self.input(DType::F32, self.main()), bound: 2.0 } }
    }

    fn f32(&mut self) -> Val {
        let value = self.float();
        if self.graph.tensor(value.id).dtype() == DType::F32 { value } else { self.dense(self.main()) }
    }

    /// An f32 value with dense rows.
    fn rows(&mut self) -> Val {
        let value = self.f32();
        if self.layout(value.id).has_contiguous_rows() { value } else { self.dense(self.main()) }
    }

    /// A dense f32 tensor of this shape, made of a value where one is large enough.
    fn dense(&mut self, ne: Ne) -> Val {
        let wanted: usize = ne.iter().product();
        let value = self.float();
        let layout = self.layout(value.id);
        let made = if layout.dtype != DType::F32 || value.bound > 4.0 {
            None
        } else if layout.is_contiguous() && layout.elements() == wanted {
            self.graph.reshape(value.id, ne).ok()
        } else if layout.is_contiguous() && layout.elements() > wanted {
            let nb = [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]];
            let room = layout.elements() - wanted;
            let offset = 4 * self.below(room + 1);
            self.graph.view(value.id, ne, nb, offset).ok()
        } else if layout.elements() == wanted {
            self.graph.cont(value.id, ne).ok()
        } else {
            None
        };
        match made {
            Some(id) => Val { id, bound: value.bound },
            None => Val { id: self.input(DType::F32, ne), bound: 2.0 },
        }
    }

    /// Something that repeats into this shape.
    fn operand(&mut self, ne: Ne) -> Val {
        let dtype = if self.chance(75) { DType::F32 } else { self.among(&ELEMENTS) };
        let weight = |this: &mut Self, ne| Val { id: this.weight(dtype, ne), bound: 1.5 };
        match self.below(9) {
            0 => weight(self, ne),
            1 | 2 => weight(self, [ne[0], 1, 1, 1]),
            3 => weight(self, [1, ne[1], 1, 1]),
            4 => weight(self, [1; 4]),
            5 if ne[0].is_multiple_of(2) => weight(self, [ne[0] / 2, 1, ne[2], 1]),
            6 if ne == self.main() => {
                let cache = self.cache(dtype);
                self.window(cache)
            }
            _ => {
                let fits =
                    |v: &&Val| v.bound <= 4.0 && self.layout(v.id).ne == ne && self.layout(v.id).dtype.is_float();
                let fitting: Vec<Val> = self.values.iter().filter(fits).copied().collect();
                if fitting.is_empty() {
                    Val { id: self.input(dtype, ne), bound: 2.0 }
                } else {
                    let newest = &fitting[fitting.len().saturating_sub(4)..];
                    self.among(newest)
                }
            }
        }
    }

    /// As many rows of a cache as there are tokens.
    fn window(&mut self, cache: TensorId) -> Val {
        let nb = self.layout(cache).nb;
        let first = self.below(CELLS - self.tokens + 1);
        let id = self.graph.view(cache, self.main(), nb, first * nb[1]).expect("rows of the cache");
        Val { id, bound: CACHE_BOUND }
    }

    fn step(&mut self) -> Result<(), GraphError> {
        match self.below(34) {
            0..=2 => self.arithmetic(),
            3..=5 => self.norm_chain(),
            6..=8 => self.add_chain(),
            9 | 10 => self.snake(),
            11 | 12 => self.function(),
            13 => self.gated(),
            14 | 15 => self.look(),
            16 => self.copy(),
            17 => self.repeat_or_concat(),
            18 => self.pick_rows(),
            19 | 20 => self.write_rows(),
            21 => self.copy_into_memory(),
            22 => self.scale_in_place(),
            23 => self.soft_max(),
            24 => self.attention(),
            25 => self.rope(),
            26 => self.product(),
            27 => self.experts(),
            28 => self.integers(),
            29 => self.convolution(),
            30 => self.delta_net(),
            31 => self.nothing(),
            32 => self.batches(),
            _ => self.rows_of_planes(),
        }
    }

    fn arithmetic(&mut self) -> Result<(), GraphError> {
        let a = self.float();
        let b = self.operand(self.layout(a.id).ne);
        match self.below(4) {
            0 => self.emit(Op::Add, &[a.id, b.id], a.bound + b.bound)?,
            1 => self.emit(Op::Sub, &[a.id, b.id], a.bound + b.bound)?,
            2 if a.bound * b.bound <= 64.0 => self.emit(Op::Mul, &[a.id, b.id], a.bound * b.bound)?,
            _ => {
                // Far from zero.
                let ne = [self.layout(a.id).ne[0], 1, 1, 1];
                let b = self.leaf(LeafKind::Weight, DType::F32, ne, Fill::Uniform(1.0, 2.0));
                self.emit(Op::Div, &[a.id, b], a.bound)?
            }
        };
        Ok(())
    }

    /// A norm, perhaps scaled and shifted, mostly by what fuses.
    fn norm_chain(&mut self) -> Result<(), GraphError> {
        let x = self.rows();
        let eps = self.among(&[1e-6, 1e-5, 0.3]);
        let op = if self.chance(60) { Op::RmsNorm { eps } } else { Op::Norm { eps } };
        let ne = self.layout(x.id).ne;
        let mut at = self.emit(op, &[x.id], (ne[0] as f32).sqrt().min(4.0))?;
        for op in [Op::Mul, Op::Add] {
            if self.chance(15) {
                break;
            }
            let other = if self.chance(70) {
                Val { id: self.weight(DType::F32, [ne[0], 1, 1, 1]), bound: 1.5 }
            } else {
                self.operand(ne)
            };
            let whole = self.layout(other.id).ne == ne && self.layout(other.id).dtype == DType::F32;
            let sources = if whole && self.chance(25) { [other.id, at] } else { [at, other.id] };
            at = self.emit(op, &sources, 6.0 + other.bound)?;
        }
        Ok(())
    }

    /// A sum of up to twenty terms, most of them alike.
    fn add_chain(&mut self) -> Result<(), GraphError> {
        let mut sum = self.float();
        let ne = self.layout(sum.id).ne;
        let length = if self.chance(70) { 2 + self.below(6) } else { 1 + self.below(20) };
        let usual = self.below(4);
        let dtype = if self.chance(80) { DType::F32 } else { self.among(&ELEMENTS) };
        let row = [ne[0], 1, 1, 1];
        for _ in 0..length {
            let kind = if self.chance(85) { usual } else { self.below(6) };
            let addend = match kind {
                0 => Val { id: self.weight(dtype, ne), bound: 1.5 },
                1 => Val { id: self.weight(dtype, row), bound: 1.5 },
                2 => Val { id: self.input(dtype, ne), bound: 2.0 },
                3 if ne == self.main() => {
                    let cache = self.cache(dtype);
                    self.window(cache)
                }
                _ => self.operand(ne),
            };
            if sum.bound + addend.bound > 100.0 {
                break;
            }
            let bound = sum.bound + addend.bound;
            sum = Val { id: self.emit(Op::Add, &[sum.id, addend.id], bound)?, bound };
        }
        Ok(())
    }

    /// The snake activation, or nearly.
    fn snake(&mut self) -> Result<(), GraphError> {
        let dtype = self.among(&ELEMENTS);
        let ne = if self.chance(15) { [self.width / 4, 4, 3, 1] } else { self.main() };
        let x = if dtype == DType::F32 { self.dense(ne) } else { Val { id: self.input(dtype, ne), bound: 2.0 } };
        let column = [1, ne[1], 1, 1];
        let factor = |this: &mut Self| if this.chance(90) { DType::F32 } else { this.among(&ELEMENTS) };
        let (a, b) = (factor(self), factor(self));
        let a = self.weight(a, column);
        let b = self.weight(b, column);
        let turned = self.emit(Op::Mul, &[x.id, a], x.bound * 1.5)?;
        let sine = self.emit(Op::Sin, &[turned], 1.0)?;
        let square = self.emit(Op::Sqr, &[sine], 1.0)?;
        let damped = self.emit(Op::Mul, &[square, b], 1.5)?;
        let x_again = if self.chance(90) { x.id } else { turned };
        let sources = if self.chance(50) { [x_again, damped] } else { [damped, x_again] };
        self.emit(Op::Add, &sources, x.bound * 1.5 + 1.5)?;
        Ok(())
    }

    fn function(&mut self) -> Result<(), GraphError> {
        let x = self.float();
        let unary = self.among(&[Unary::Tanh, Unary::Sigmoid, Unary::Gelu, Unary::Silu, Unary::Softplus]);
        match self.below(5) {
            0 | 1 => self.emit(Op::Unary(unary), &[x.id], x.bound.max(1.0))?,
            2 if x.bound <= 6.0 => self.emit(Op::Sqr, &[x.id], x.bound * x.bound)?,
            3 => self.emit(Op::Sin, &[x.id], 1.0)?,
            _ => {
                let x = self.f32();
                if self.chance(50) {
                    let (scale, bias) = (self.among(&[0.25, -0.5, 1.0]), self.among(&[0.0, 0.5]));
                    self.emit(Op::Scale { scale, bias, in_place: false }, &[x.id], x.bound + 0.5)?
                } else {
                    self.emit(Op::Clamp { min: -1.5, max: 1.0 }, &[x.id], 1.5)?
                }
            }
        };
        Ok(())
    }

    fn gated(&mut self) -> Result<(), GraphError> {
        let glu = self.among(&[Glu::Geglu, Glu::Swiglu]);
        let dtype = self.among(&ELEMENTS);
        let a = if self.chance(70) {
            self.dense(self.main())
        } else {
            Val { id: self.input(dtype, self.main()), bound: 2.0 }
        };
        if self.chance(50) {
            let swapped = self.chance(50);
            self.emit(Op::Glu { glu, swapped }, &[a.id], a.bound * a.bound)?;
        } else {
            let b = self.input(self.layout(a.id).dtype, self.main());
            self.emit(Op::Glu { glu, swapped: false }, &[a.id, b], a.bound * 2.0)?;
        }
        Ok(())
    }

    /// A view of a value.
    fn look(&mut self) -> Result<(), GraphError> {
        let x = self.float();
        let Layout { ne, nb, .. } = self.layout(x.id);
        match self.below(5) {
            0 => self.emit(Op::Transpose, &[x.id], x.bound)?,
            1 => {
                let axes = self.among(&[[0, 2, 1, 3], [1, 0, 2, 3], [2, 0, 1, 3], [0, 1, 3, 2]]);
                self.emit(Op::Permute { axes }, &[x.id], x.bound)?
            }
            2 if ne[1] > 1 => {
                let skipped = self.below(ne[1]);
                let ne = [ne[0], ne[1] - skipped, ne[2], ne[3]];
                self.emit(Op::View { ne, nb, offset: skipped * nb[1] }, &[x.id], x.bound)?
            }
            3 if ne[0].is_multiple_of(4) => {
                let offset = self.below(4) * (ne[0] / 4) * nb[0];
                self.emit(Op::View { ne: [ne[0] / 4, ne[1], ne[2], ne[3]], nb, offset }, &[x.id], x.bound)?
            }
            _ => {
                let heads = self.dense(self.main());
                self.emit(Op::Reshape { ne: [self.width / 4, 4, self.tokens, 1] }, &[heads.id], heads.bound)?
            }
        };
        Ok(())
    }

    fn copy(&mut self) -> Result<(), GraphError> {
        let x = self.float();
        let ne = self.layout(x.id).ne;
        let ne = if self.chance(50) { ne } else { [ne.iter().product(), 1, 1, 1] };
        self.emit(Op::Cont { ne }, &[x.id], x.bound)?;
        Ok(())
    }

    fn repeat_or_concat(&mut self) -> Result<(), GraphError> {
        let x = self.float();
        let Layout { dtype, ne, .. } = self.layout(x.id);
        if ne.iter().product::<usize>() > 2000 {
            return Ok(());
        }
        if self.chance(50) {
            let mut ne = ne;
            ne[self.below(4)] *= 2;
            self.emit(Op::Repeat { ne }, &[x.id], x.bound)?;
        } else {
            let dim = self.below(4);
            let other = if self.chance(30) { x.id } else { self.input(dtype, ne) };
            let sources = if self.chance(50) { [x.id, other] } else { [other, x.id] };
            self.emit(Op::Concat { dim: dim as u8 }, &sources, x.bound.max(2.0))?;
        }
        if self.chance(40) {
            let x = self.f32();
            self.emit(Op::SumRows, &[x.id], x.bound * self.layout(x.id).ne[0] as f32)?;
        }
        Ok(())
    }

    fn pick_rows(&mut self) -> Result<(), GraphError> {
        let dtype = self.among(&ELEMENTS);
        let source = match self.below(3) {
            0 => Val { id: self.cache(dtype), bound: CACHE_BOUND },
            1 => Val { id: self.weight(dtype, [self.width, CELLS, 1, 1]), bound: 1.5 },
            _ => self.dense(self.main()),
        };
        let count = self.layout(source.id).ne[1];
        let fill = Fill::Indices { count };
        let ids = self.leaf(LeafKind::Input, DType::I32, [count.min(self.tokens), 1, 1, 1], fill);
        self.emit(Op::GetRows, &[source.id, ids], source.bound)?;
        Ok(())
    }

    /// A value that a cache may hold.
    fn for_cache(&mut self, ne: Ne) -> Val {
        let x = self.dense(ne);
        if x.bound <= CACHE_BOUND { x } else { Val { id: self.input(DType::F32, ne), bound: 2.0 } }
    }

    fn write_rows(&mut self) -> Result<(), GraphError> {
        let x = self.for_cache(self.main());
        let dtype = self.among(&ELEMENTS);
        let index = self.among(&[DType::I32, DType::I64]);
        let cache = self.cache(dtype);
        let nb = self.layout(cache).nb;
        // Often a part of the cache.
        let (target, count) = if self.chance(60) {
            (cache, CELLS)
        } else {
            let skipped = CELLS - 12;
            (self.graph.view(cache, [self.width, 12, 1, 1], nb, skipped * nb[1])?, 12)
        };
        let ids = self.leaf(LeafKind::Input, index, [self.tokens, 1, 1, 1], Fill::Indices { count });
        self.emit(Op::SetRows, &[x.id, ids, target], CACHE_BOUND)?;
        if self.chance(50) {
            // Read through the cache, not through the result.
            let read = self.window(cache);
            self.keep(read.id, read.bound)?;
        }
        Ok(())
    }

    fn copy_into_memory(&mut self) -> Result<(), GraphError> {
        let x = self.for_cache(self.main());
        let dtype = self.among(&ELEMENTS);
        match self.below(4) {
            // A column for each token, as in a transposed cache.
            0 => {
                let cache = self.leaf(LeafKind::Cache, dtype, [CELLS, self.width, 1, 1], Fill::Uniform(-1.0, 1.0));
                let unit = dtype.block_bytes();
                let (first, row) = (self.below(CELLS - self.tokens + 1), CELLS * unit);
                let nb = [row, unit, row * self.width, row * self.width];
                let target = self.graph.view(cache, self.main(), nb, first * unit)?;
                self.emit(Op::Cpy, &[x.id, target], CACHE_BOUND)?;
            }
            // Over a result.
            1 => {
                let other = self.rows();
                let layout = self.layout(other.id);
                let is_apart = self.graph.root(other.id) != self.graph.root(x.id);
                let is_weight = self.graph.class(other.id) == BufferClass::Weight;
                if is_apart && !is_weight && layout.ne == self.main() && layout.nb[0] == 4 && other.bound >= x.bound {
                    self.emit(Op::Cpy, &[x.id, other.id], other.bound)?;
                }
            }
            _ => {
                let cache = self.cache(dtype);
                let target = self.window(cache);
                self.emit(Op::Cpy, &[x.id, target.id], CACHE_BOUND)?;
            }
        }
        Ok(())
    }

    fn scale_in_place(&mut self) -> Result<(), GraphError> {
        let x = if self.chance(40) {
            let cache = self.cache(DType::F32);
            self.window(cache)
        } else {
            self.rows()
        };
        let is_weight = self.graph.class(x.id) == BufferClass::Weight;
        // Elements of indices and distinct numbers are meant as they are.
        let kept =
            self.leaves.iter().any(|leaf| leaf.id == self.graph.root(x.id) && !matches!(leaf.fill, Fill::Uniform(..)));
        if is_weight || kept || x.bound < 1.0 {
            return Ok(());
        }
        let scale = self.among(&[0.5, -0.75, 0.0]);
        self.emit(Op::Scale { scale, bias: 0.25, in_place: true }, &[x.id], x.bound)?;
        Ok(())
    }

    fn soft_max(&mut self) -> Result<(), GraphError> {
        let heads = 4;
        let x = if self.chance(70) { self.dense([self.width / 4, self.tokens, heads, 1]) } else { self.rows() };
        let ne = self.layout(x.id).ne;
        let mask = if self.chance(60) {
            let dtype = self.among(&[DType::F16, DType::F32]);
            let ne = [ne[0], ne[1] + self.below(2), if self.chance(30) { ne[2] } else { 1 }, 1];
            Some(self.leaf(LeafKind::Input, dtype, ne, Fill::Mask))
        } else {
            None
        };
        let sinks = if self.chance(30) { Some(self.weight(DType::F32, [ne[2], 1, 1, 1])) } else { None };
        let max_bias = if mask.is_some() { self.among(&[0.0, 8.0]) } else { 0.0 };
        let scale = self.among(&[1.0, 0.3]);
        let id = self.graph.soft_max(x.id, mask, sinks, scale, max_bias)?;
        self.keep(id, 1.0)
    }

    fn attention(&mut self) -> Result<(), GraphError> {
        let (heads, heads_kv) = (4, self.among(&[1, 2, 4]));
        let size = self.width / 4;
        let q = self.dense([size, heads, self.tokens, 1]);
        let q = self.graph.permute(q.id, [0, 2, 1, 3])?;
        let half = |this: &mut Self| {
            let dtype = this.among(&ELEMENTS);
            let cache = this.cache(dtype);
            let nb = this.layout(cache).nb;
            this.graph.view(cache, [size, CELLS, heads_kv, 1], [nb[0], nb[1], nb[0] * size, nb[2]], 0)
        };
        let (k, v) = (half(self)?, half(self)?);
        let ne = [CELLS, self.tokens, 1, 1];
        let mask = if self.chance(70) { Some(self.leaf(LeafKind::Input, DType::F16, ne, Fill::Mask)) } else { None };
        let sinks = if self.chance(25) { Some(self.weight(DType::F32, [heads, 1, 1, 1])) } else { None };
        let attn = FlashAttn {
            scale: 1.0 / (size as f32).sqrt(),
            max_bias: if mask.is_some() { self.among(&[0.0, 0.0, 8.0]) } else { 0.0 },
            logit_softcap: self.among(&[0.0, 0.0, 5.0]),
            precision: Precision::Default,
        };
        let id = self.graph.flash_attn([q, k, v], mask, sinks, attn)?;
        self.keep(id, CACHE_BOUND)
    }

    fn rope(&mut self) -> Result<(), GraphError> {
        let size = self.width / 4;
        let dtype = self.among(&ELEMENTS);
        let ne = [size, 4, self.tokens, 1];
        let x = if self.chance(75) { self.dense(ne) } else { Val { id: self.input(dtype, ne), bound: 2.0 } };
        let fill = Fill::Positions { count: 500 };
        let positions = self.leaf(LeafKind::Input, DType::I32, [self.tokens, 1, 1, 1], fill);
        let n_dims = self.among(&[size, size / 2]) as u32;
        let factors = if self.chance(30) {
            let ne = [n_dims as usize / 2, 1, 1, 1];
            Some(self.leaf(LeafKind::Weight, DType::F32, ne, Fill::Uniform(1.0, 2.0)))
        } else {
            None
        };
        let rope = Rope {
            n_dims,
            first_dim: 0,
            mode: self.among(&[RopeMode::Normal, RopeMode::Neox]),
            n_ctx_orig: 128,
            freq_base: 10_000.0,
            freq_scale: self.among(&[1.0, 0.25]),
            ext_factor: self.among(&[0.0, 0.0, 1.0]),
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
        };
        let id = self.graph.rope(x.id, positions, factors, rope)?;
        self.keep(id, x.bound * 1.5)
    }

    fn product(&mut self) -> Result<(), GraphError> {
        let dtype = self.among(&ELEMENTS);
        let width = self.width;
        match self.below(3) {
            // Scores of heads: queries by keys of fewer heads.
            0 => {
                let q = self.dense([width / 4, self.tokens, 4, 1]);
                let heads = self.among(&[1, 2]);
                let k = self.dense([width / 4, self.tokens, heads, 1]);
                self.emit(Op::MUL_MAT, &[k.id, q.id], (width / 4) as f32 * k.bound * q.bound)?;
            }
            // Values of a cache that is transposed.
            1 => {
                let cache = self.leaf(LeafKind::Cache, dtype, [CELLS, width, 1, 1], Fill::Uniform(-1.0, 1.0));
                let weights = self.dense([CELLS, self.tokens, 1, 1]);
                self.emit(Op::MUL_MAT, &[cache, weights.id], 16.0)?;
            }
            _ => {
                let matrix = self.leaf(LeafKind::Weight, dtype, [width, width, 1, 1], Fill::Uniform(-0.3, 0.3));
                let x = if self.chance(75) {
                    self.dense(self.main())
                } else {
                    // Columns that are not dense.
                    let turned = self.dense([self.tokens, width, 1, 1]);
                    Val { id: self.graph.transpose(turned.id)?, bound: turned.bound }
                };
                self.emit(Op::MUL_MAT, &[matrix, x.id], x.bound * 2.0)?;
            }
        }
        Ok(())
    }

    /// Routing and the products of the experts that it picks.
    fn experts(&mut self) -> Result<(), GraphError> {
        let (experts, used, tokens, width) = (8, self.among(&[1, 2, 3]), self.tokens, self.width);
        let scores = self.leaf(LeafKind::Input, DType::F32, [experts, tokens, 1, 1], Fill::Apart);
        let probabilities = self.graph.soft_max(scores, None, None, 1.0, 0.0)?;
        self.keep(probabilities, 1.0)?;
        let rows = self.graph.reshape(probabilities, [1, experts, tokens, 1])?;
        let order = self.among(&[SortOrder::Descending, SortOrder::Ascending]);
        let sorted = self.graph.argsort(probabilities, order)?;
        if self.chance(20) {
            self.graph.set_output(sorted)?;
        }
        let nb = self.layout(sorted).nb;
        let ids = self.graph.view(sorted, [used, tokens, 1, 1], nb, 0)?;
        let weights = self.emit(Op::GetRows, &[rows, ids], 1.0)?;
        let dtype = self.among(&ELEMENTS);
        let matrices = self.leaf(LeafKind::Weight, dtype, [width, width, experts, 1], Fill::Uniform(-0.3, 0.3));
        let columns = if self.chance(70) { 1 } else { used };
        let x = self.dense([width, columns, tokens, 1]);
        let products = self.emit(Op::MUL_MAT_ID, &[matrices, x.id, ids], x.bound * 2.0)?;
        let scaled = self.emit(Op::Mul, &[products, weights], x.bound * 2.0)?;
        let nb = self.layout(scaled).nb;
        let expert = |this: &mut Self, at: usize| {
            this.graph.view(scaled, [width, tokens, 1, 1], [nb[0], nb[2], nb[3], nb[3]], at * nb[1])
        };
        let mut sum = expert(self, 0)?;
        for at in 1..used {
            let next = expert(self, at)?;
            sum = self.emit(Op::Add, &[sum, next], x.bound * 2.0 * used as f32)?;
        }
        self.keep(sum, x.bound * 2.0 * used as f32)
    }

    /// Operations on tensors without elements, and what follows from them.
    fn nothing(&mut self) -> Result<(), GraphError> {
        let x = self.dense(self.main());
        let nb = self.layout(x.id).nb;
        let none = self.graph.view(x.id, [self.width, 0, 1, 1], nb, 0)?;
        let weight = self.weight(DType::F32, [self.width, 1, 1, 1]);
        let normed = self.emit_empty(Op::RmsNorm { eps: 1e-5 }, &[none])?;
        let scaled = self.emit_empty(Op::Mul, &[normed, weight])?;
        match self.below(4) {
            0 => self.emit(Op::Concat { dim: 1 }, &[x.id, scaled], x.bound)?,
            1 => self.emit(Op::Concat { dim: 1 }, &[scaled, x.id], x.bound)?,
            // A product over no terms.
            2 => {
                let flat = self.graph.transpose(scaled)?;
                let flat = self.graph.cont(flat, [0, self.width, 1, 1])?;
                self.emit(Op::MUL_MAT, &[flat, flat], 1.0)?
            }
            _ => {
                let matrix =
                    self.leaf(LeafKind::Weight, DType::F32, [self.width, self.width, 1, 1], Fill::Uniform(-0.3, 0.3));
                let product = self.emit_empty(Op::MUL_MAT, &[matrix, scaled])?;
                let sum = self.emit_empty(Op::Add, &[product, scaled])?;
                self.emit_empty(Op::Add, &[sum, weight])?
            }
        };
        Ok(())
    }

    fn emit_empty(&mut self, op: Op, sources: &[TensorId]) -> Result<TensorId, GraphError> {
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        let id = self.graph.push(op, &sources)?;
        self.graph.set_output(id)?;
        self.graph.expand(id)?;
        Ok(id)
    }

    /// Products, soft-max, attention and positions over four dimensions.
    fn batches(&mut self) -> Result<(), GraphError> {
        let (size, tokens, heads, batch) = (8, self.tokens, 4, 2);
        let x = self.dense([size, tokens, heads, batch]);
        let dtype = self.among(&ELEMENTS);
        match self.below(4) {
            0 => {
                let shared = self.among(&[[1, 1], [2, 1], [4, 2], [1, 2]]);
                let matrix = self.weight(dtype, [size, 20, shared[0], shared[1]]);
                self.emit(Op::MUL_MAT, &[matrix, x.id], x.bound * 12.0)?;
            }
            1 => {
                let half = |this: &mut Self, width| {
                    let ne = [width, CELLS, 2, this.among(&[1, 2])];
                    this.leaf(LeafKind::Cache, dtype, ne, Fill::Uniform(-1.0, 1.0))
                };
                let k = half(self, size);
                let ne = self.layout(k).ne;
                let v = self.leaf(LeafKind::Cache, dtype, [12, ne[1], ne[2], ne[3]], Fill::Uniform(-1.0, 1.0));
                let mask = [CELLS, tokens, self.among(&[1, 4]), self.among(&[1, 2])];
                let mask = self.leaf(LeafKind::Input, DType::F16, mask, Fill::Mask);
                let attn = FlashAttn { scale: 0.3, max_bias: 0.0, logit_softcap: 0.0, precision: Precision::F32 };
                let id = self.graph.flash_attn([x.id, k, v], Some(mask), None, attn)?;
                self.keep(id, CACHE_BOUND)?;
            }
            2 => {
                let mask = [size, tokens, self.among(&[1, 2, 4]), self.among(&[1, 2])];
                let mask = self.leaf(LeafKind::Input, DType::F32, mask, Fill::Mask);
                let id = self.graph.soft_max(x.id, Some(mask), None, 1.0, 4.0)?;
                self.keep(id, 1.0)?;
            }
            _ => {
                let turned = self.graph.permute(x.id, [0, 2, 1, 3])?;
                let b = self.weight(dtype, [1, heads, 1, batch]);
                let product = self.emit(Op::Mul, &[turned, b], x.bound * 1.5)?;
                let axes = self.among(&[[3, 1, 2, 0], [0, 3, 1, 2], [2, 1, 0, 3]]);
                let other = self.graph.permute(product, axes)?;
                self.emit(Op::Unary(Unary::Silu), &[other], x.bound * 1.5)?;
            }
        }
        Ok(())
    }

    /// Rows picked from, and written to, several planes.
    fn rows_of_planes(&mut self) -> Result<(), GraphError> {
        let (planes, batch, count) = (3, 2, 5);
        let dtype = self.among(&ELEMENTS);
        // Odd rows, so that halves share words.
        let row = self.among(&[7, 8]);
        let cache = self.leaf(LeafKind::Cache, dtype, [row, count, planes, batch], Fill::Uniform(-1.0, 1.0));
        let x = self.dense([row, 2, planes, batch]);
        let index = self.among(&[DType::I32, DType::I64]);
        let ids = [2, self.among(&[1, planes]), self.among(&[1, batch]), 1];
        let ids = self.leaf(LeafKind::Input, index, ids, Fill::Indices { count });
        let written = self.emit(Op::SetRows, &[x.id, ids, cache], CACHE_BOUND)?;
        let ids = self.leaf(LeafKind::Input, DType::I32, [4, planes, batch, 1], Fill::Indices { count });
        let source = if self.chance(50) { written } else { cache };
        let picked = self.emit(Op::GetRows, &[source, ids], CACHE_BOUND)?;
        // Each row without its first element.
        let nb = self.layout(picked).nb;
        let inner = self.graph.view(picked, [row - 1, 4, planes, batch], nb, nb[0])?;
        self.emit(Op::RmsNorm { eps: 1e-5 }, &[inner], 3.0)?;
        let nb = self.layout(cache).nb;
        let inner = self.graph.view(cache, [row - 1, count, planes, batch], nb, nb[0])?;
        self.keep(inner, CACHE_BOUND)
    }

    /// Integers are moved, never computed with.
    fn integers(&mut self) -> Result<(), GraphError> {
        let fill = Fill::Indices { count: 1000 };
        let dtype = self.among(&[DType::I32, DType::I64]);
        let ne = [6, self.tokens, 1, 1];
        let a = self.leaf(LeafKind::Input, dtype, ne, fill);
        let b = self.leaf(LeafKind::Input, dtype, ne, fill);
        let dim = self.among(&[0, 1]);
        let joined = self.graph.concat(a, b, dim)?;
        let turned = self.graph.transpose(joined)?;
        let ne = self.layout(turned).ne;
        let dense = self.graph.cont(turned, ne)?;
        self.graph.set_output(dense)?;
        self.graph.expand(dense)
    }

    fn convolution(&mut self) -> Result<(), GraphError> {
        let (width, channels, sequences) = (4, 12, self.among(&[1, 2]));
        let x = self.dense([width - 1 + self.tokens, channels, sequences, 1]);
        let kernel = self.weight(DType::F32, [width, channels, 1, 1]);
        self.emit(Op::SsmConv, &[x.id, kernel], x.bound * 6.0)?;
        Ok(())
    }

    /// A gated delta net whose snapshots go to a cache, mostly as the table wants it.
    fn delta_net(&mut self) -> Result<(), GraphError> {
        let (size, heads, tokens) = (self.among(&[8, 16]), 2, self.tokens);
        let batch = self.among(&[1, 2]);
        let snapshots = self.among(&[1, 1, 3]);
        let kept = tokens.min(snapshots);
        let keys = [size, self.among(&[1, 2]), tokens, batch];
        let (q, k) = (self.dense(keys), self.dense(keys));
        // Keys of length 1 keep the state bounded.
        let k = self.graph.rms_norm(k.id, 1e-5)?;
        let k = self.graph.scale(k, 1.0 / (size as f32).sqrt(), 0.0)?;
        let v = self.dense([size, heads, tokens, batch]);
        let gate = [self.among(&[1, size]), heads, tokens, batch];
        let g = self.leaf(LeafKind::Input, DType::F32, gate, Fill::Uniform(-1.0, 0.0));
        let beta = self.leaf(LeafKind::Input, DType::F32, [1, heads, tokens, batch], Fill::Uniform(0.0, 1.0));
        let state = size * size * heads;
        let slots = [state, batch + 1, 4, 1];
        let cache = self.leaf(LeafKind::Cache, DType::F32, slots, Fill::Uniform(-1.0, 1.0));
        let nb = self.layout(cache).nb;
        let newest = self.among(&[0, 0, 1]);
        let before = self.graph.view(cache, [state, batch, 1, 1], nb, newest * nb[2])?;
        let before = self.graph.reshape(before, [size, size, heads, batch])?;
        let net = self.graph.gated_delta_net([q.id, k, v.id, g, beta, before], snapshots as u32)?;
        let attention = size * heads * tokens * batch;
        let dense = |ne: Ne| [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]];
        let tail_ne = [state, batch, kept, 1];
        let tail = self.graph.view(net, tail_ne, dense(tail_ne), attention * 4)?;
        let slot = self.below(4 - kept + 1);
        let target = self.graph.view(cache, tail_ne, nb, slot * nb[2])?;
        let copy = self.graph.cpy(tail, target)?;
        self.graph.expand(copy)?;
        if self.chance(15) {
            // Somebody else looks at the snapshots.
            self.keep(tail, CACHE_BOUND)?;
            let twice = self.graph.sqr(tail)?;
            self.graph.set_output(twice)?;
            self.graph.expand(twice)?;
        }
        let rows = [size * heads, tokens * batch, 1, 1];
        let rows = self.graph.view(net, rows, dense(rows), 0)?;
        self.keep(rows, CACHE_BOUND)
    }

    fn finish(mut self) -> Generated {
        for id in std::mem::take(&mut self.late) {
            self.graph.expand(id).expect("a tensor of this graph");
        }
        // What nobody reads is what the graph is for.
        let newest = self.values.len().saturating_sub(3);
        for value in &self.values[newest..] {
            self.graph.set_output(value.id).expect("a tensor of this graph");
        }
        Generated { graph: self.graph, leaves: self.leaves }
    }
}

/// The contents of a leaf, in memory order.
pub fn contents(layout: &Layout, fill: Fill, random: &mut Random) -> Vec<f64> {
    let count = layout.elements();
    let row = layout.ne[0].max(1);
    let shuffled = |random: &mut Random, range: Range<usize>| {
        let mut all: Vec<usize> = range.collect();
        for at in (1..all.len()).rev() {
            all.swap(at, random.word() as usize % (at + 1));
        }
        all
    };
    match fill {
        Fill::Uniform(low, high) => {
            (0..count).map(|_| f64::from(low) + f64::from(high - low) * (random.float() + 1.0) / 2.0).collect()
        }
        Fill::Apart => {
            let rows = (0..count / row).flat_map(|_| shuffled(random, 0..row));
            rows.map(|at| at as f64 / row as f64 * 4.0 - 2.0).collect()
        }
        Fill::Indices { count: rows } => {
            let ids = (0..count / row).flat_map(|_| shuffled(random, 0..rows).into_iter().take(row));
            ids.map(|id| id as f64).collect()
        }
        Fill::Positions { count: end } => {
            let first = random.word() as usize % end;
            (first..first + count).map(|position| position as f64).collect()
        }
        Fill::Mask => {
            let one = |random: &mut Random| match random.word() % 4 {
                0 => f64::NEG_INFINITY,
                1 => -0.5,
                _ => 0.0,
            };
            (0..count).map(|_| one(random)).collect()
        }
    }
}
