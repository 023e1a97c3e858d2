//! Builder methods: one per operation, each of which checks its sources.

mod filling;
mod pointwise;
mod reduce;

use super::infer::infer;
use super::tensor::{Layout, LeafKind, MAX_SOURCES, Tensor, TensorId, ViewOf};
use super::{DType, FlashAttn, Glu, Graph, GraphError, MatrixHint, Op, OpKind, Precision, Rope, SortOrder, Unary};

type Made = Result<TensorId, GraphError>;

impl Graph {
    /// A leaf: memory that the caller provides, dense, found by its name.
    ///
    /// # Errors
    /// [`GraphError::Size`].
    pub fn leaf(&mut self, name: impl Into<String>, kind: LeafKind, dtype: DType, ne: [usize; 4]) -> Made {
        let layout = Layout::contiguous(dtype, ne)?;
        Ok(self.insert(Tensor {
            name: name.into(),
            layout,
            op: Op::None,
            src: [None; MAX_SOURCES],
            view: None,
            leaf: Some(kind),
            output: false,
        }))
    }

    /// Adds any operation.
    ///
    /// # Errors
    /// See [`infer`]; [`GraphError::Unknown`] for foreign ids, [`GraphError::OutOfBounds`] for views past the memory,
    /// [`GraphError::Constant`] for writing a weight.
    pub fn push(&mut self, op: Op, sources: &[Option<TensorId>]) -> Made {
        if sources.len() > MAX_SOURCES {
            let expected = format!("at most {MAX_SOURCES}");
            return Err(GraphError::Arity { op: op.kind(), given: sources.len(), expected });
        }
        let mut given: [Option<&Tensor>; MAX_SOURCES] = [None; MAX_SOURCES];
        let mut src = [None; MAX_SOURCES];
        for (slot, &source) in sources.iter().enumerate() {
            src[slot] = source;
            given[slot] = match source {
                Some(id) => Some(self.get(id).ok_or(GraphError::Unknown(id))?),
                None => None,
            };
        }
        let inferred = infer(&op, &given[..sources.len()])?;
        for slot in op.kind().updates() {
            self.writable(op.kind(), src[*slot])?;
        }
        let view = match inferred.shares {
            Some((slot, offset)) => Some(self.shared_memory(op.kind(), src[slot], offset, &inferred.layout)?),
            None => None,
        };
        Ok(self.insert(Tensor {
            name: String::new(),
            layout: inferred.layout,
            op,
            src,
            view,
            leaf: None,
            output: false,
        }))
    }

    /// Nothing writes a weight.
    fn writable(&self, op: OpKind, source: Option<TensorId>) -> Result<(), GraphError> {
        let root = source.map(|source| self.tensor(self.root(source)));
        match root.filter(|root| root.leaf == Some(LeafKind::Weight)) {
            Some(weight) => Err(GraphError::Constant { op, name: weight.name.clone() }),
            None => Ok(()),
        }
    }

    fn shared_memory(
        &self,
        op: OpKind,
        source: Option<TensorId>,
        offset: usize,
        layout: &Layout,
    ) -> Result<ViewOf, GraphError> {
        let arity = || GraphError::Arity { op, given: 0, expected: "the source whose memory is shared".to_owned() };
        let source = source.ok_or_else(arity)?;
        let of = self.tensor(source).view.unwrap_or(ViewOf { root: source, offset: 0 });
        let available = self.tensor(of.root).layout.extent();
        // A node that is no view but shares memory is one that writes it.
        if !op.is_view() {
            self.writable(op, Some(source))?;
        }
        let start = of.offset.saturating_add(offset);
        let end = start.saturating_add(layout.extent());
        if end > available {
            return Err(GraphError::OutOfBounds { op, end, available });
        }
        // Strides of zero would make any amount of work of a few bytes.
        let dense = Layout::contiguous(layout.dtype, layout.ne)?.extent();
        if dense > available {
            let (found, expected) = (format!("{:?}", layout.ne), format!("at most the {available} bytes there are"));
            return Err(GraphError::Parameter { op, name: "ne", found, expected });
        }
        Ok(ViewOf { root: of.root, offset: start })
    }

    fn insert(&mut self, tensor: Tensor) -> TensorId {
        let id = TensorId(self.tensors.len() as u32);
        self.tensors.push(tensor);
        self.expanded.push(false);
        self.uses.push(0);
        id
    }
}

macro_rules! builders {
    ($($(#[doc = $doc:literal])+ fn $name:ident($first:ident $(, $source:ident)* $(; $($parameter:ident: $type:ty),+)?) = $op:expr;)+) => {
        impl Graph {
            $(
                $(#[doc = $doc])+
                ///
                /// # Errors
                /// When the sources or parameters do not fit; see [`infer`](crate::graph::infer).
                pub fn $name(&mut self, $first: TensorId $(, $source: TensorId)* $($(, $parameter: $type)+)?) -> Made {
                    self.push($op, &[Some($first) $(, Some($source))*])
                }
            )+
        }
    };
}

use builders;

builders! {
    /// A window of shape `ne` and byte strides `nb` on `a`, `offset` bytes from its start: [`Op::View`].
    fn view(a; ne: [usize; 4], nb: [usize; 4], offset: usize) = Op::View { ne, nb, offset };
    /// Contiguous `a` with another shape: [`Op::Reshape`].
    fn reshape(a; ne: [usize; 4]) = Op::Reshape { ne };
    /// `a` with axis `i` moved to `axes[i]`: [`Op::Permute`].
    fn permute(a; axes: [u8; 4]) = Op::Permute { axes };
    /// `a` with its first two axes exchanged: [`Op::Transpose`].
    fn transpose(a) = Op::Transpose;
    /// Rows of `a [n, r, b, c]` at the i32 `ids [k, b, c]`, giving `[n, k, b, c]`: [`Op::GetRows`].
    fn get_rows(a, ids) = Op::GetRows;
    /// Writes the f32 rows of `values` to the rows `ids` (i32 or i64) of `dst`: [`Op::SetRows`].
    fn set_rows(values, ids, dst) = Op::SetRows;
    /// Writes `a` into `b`: [`Op::Cpy`].
    fn cpy(a, b) = Op::Cpy;
    /// A dense copy of `a` with shape `ne`: [`Op::Cont`].
    fn cont(a; ne: [usize; 4]) = Op::Cont { ne };
    /// `a [k, m, …]` times f32 `b [k, n, …]`, giving `[m, n, …]`: [`Op::MulMat`].
    fn mul_mat(a, b) = Op::MUL_MAT;
    /// `a [k, m, experts]` times `b [k, columns, tokens]` by `ids [used, tokens]`, giving `[m, used, tokens]`: [`Op::MulMatId`].
    fn mul_mat_id(a, b, ids) = Op::MUL_MAT_ID;
    /// `a + b`: [`Op::Add`].
    fn add(a, b) = Op::Add;
    /// `a - b`: [`Op::Sub`].
    fn sub(a, b) = Op::Sub;
    /// `a · b`: [`Op::Mul`].
    fn mul(a, b) = Op::Mul;
    /// `a / b`: [`Op::Div`].
    fn div(a, b) = Op::Div;
    /// `a · scale + bias`: [`Op::Scale`].
    fn scale(a; scale: f32, bias: f32) = Op::Scale { scale, bias, in_place: false };
    /// `a ← a · scale + bias`: [`Op::Scale`] in place.
    fn scale_in_place(a; scale: f32, bias: f32) = Op::Scale { scale, bias, in_place: true };
    /// `a` repeated to shape `ne`: [`Op::Repeat`].
    fn repeat(a; ne: [usize; 4]) = Op::Repeat { ne };
    /// `a` followed by `b` along `dim`: [`Op::Concat`].
    fn concat(a, b; dim: u8) = Op::Concat { dim };
    /// Layer normalisation without weights: [`Op::Norm`].
    fn norm(a; eps: f32) = Op::Norm { eps };
    /// Root-mean-square normalisation without weights: [`Op::RmsNorm`].
    fn rms_norm(a; eps: f32) = Op::RmsNorm { eps };
    /// Sum of each row: [`Op::SumRows`].
    fn sum_rows(a) = Op::SumRows;
    /// Indices that sort each row: [`Op::Argsort`].
    fn argsort(a; order: SortOrder) = Op::Argsort { order };
    /// `a` held to `[min, max]`: [`Op::Clamp`].
    fn clamp(a; min: f32, max: f32) = Op::Clamp { min, max };
    /// `a²`: [`Op::Sqr`].
    fn sqr(a) = Op::Sqr;
    /// `sin a`: [`Op::Sin`].
    fn sin(a) = Op::Sin;
    /// An element-wise function: [`Op::Unary`].
    fn unary(a; unary: Unary) = Op::Unary(unary);
    /// `act(a) · b`: [`Op::Glu`] with two sources.
    fn glu(a, b; glu: Glu) = Op::Glu { glu, swapped: false };
    /// `act(first half) · second half` of each row, or the other way round: [`Op::Glu`] with one source.
    fn glu_halves(a; glu: Glu, swapped: bool) = Op::Glu { glu, swapped };
    /// Causal convolution of `x [width - 1 + t, channels, sequences]` with `c [width, channels]`: [`Op::SsmConv`].
    fn ssm_conv(x, c) = Op::SsmConv;
}

impl Graph {
    /// [`Graph::mul_mat`] of a certain precision, with what is known about `a`.
    ///
    /// # Errors
    /// When the sources do not fit; see [`infer`].
    pub fn mul_mat_with(&mut self, a: TensorId, b: TensorId, precision: Precision, hint: MatrixHint) -> Made {
        self.push(Op::MulMat { precision, hint }, &[Some(a), Some(b)])
    }

    /// [`Graph::mul_mat_id`] of a certain precision.
    ///
    /// # Errors
    /// When the sources do not fit; see [`infer`].
    pub fn mul_mat_id_with(&mut self, [a, b, ids]: [TensorId; 3], precision: Precision) -> Made {
        self.push(Op::MulMatId { precision }, &[Some(a), Some(b), Some(ids)])
    }

    /// Soft-max over rows with optional mask and sinks: [`Op::SoftMax`].
    ///
    /// # Errors
    /// When the sources do not fit; see [`infer`].
    pub fn soft_max(
        &mut self,
        a: TensorId,
        mask: Option<TensorId>,
        sinks: Option<TensorId>,
        scale: f32,
        max_bias: f32,
    ) -> Made {
        self.push(Op::SoftMax { scale, max_bias }, &[Some(a), mask, sinks])
    }

    /// Rotary embedding of `a [d, heads, tokens]` at i32 positions, with optional frequency factors: [`Op::Rope`].
    ///
    /// # Errors
    /// When the sources or parameters do not fit; see [`infer`].
    pub fn rope(&mut self, a: TensorId, positions: TensorId, factors: Option<TensorId>, rope: Rope) -> Made {
        self.push(Op::Rope(rope), &[Some(a), Some(positions), factors])
    }

    /// Gradient of [`Graph::rope`] with the same positions, factors and parameters, from that of its result:
    /// [`Op::RopeBack`].
    ///
    /// # Errors
    /// When the sources or parameters do not fit; see [`infer`].
    pub fn rope_back(&mut self, grad: TensorId, positions: TensorId, factors: Option<TensorId>, rope: Rope) -> Made {
        self.push(Op::RopeBack(rope), &[Some(grad), Some(positions), factors])
    }

    /// Attention of `q [d, n, heads, b]` over `k [d, kv, heads_kv, b]` and `v [dv, kv, heads_kv, b]`, giving
    /// `[dv, heads, n, b]`: [`Op::FlashAttn`].
    ///
    /// # Errors
    /// When the sources do not fit; see [`infer`].
    pub fn flash_attn(
        &mut self,
        [q, k, v]: [TensorId; 3],
        mask: Option<TensorId>,
        sinks: Option<TensorId>,
        attn: FlashAttn,
    ) -> Made {
        self.push(Op::FlashAttn(attn), &[Some(q), Some(k), Some(v), mask, sinks])
    }

    /// Gated delta rule over `q, k [s, heads_k, t, b]`, `v [s, heads, t, b]`, `g [1 or s, heads, t, b]` (log decay),
    /// `beta [1, heads, t, b]` and `state [s, s, heads, b]`, giving `[s·heads, t·b + s·snapshots·b]`: the attention rows,
    /// then the snapshots `[s, s, heads, b]`, newest first: [`Op::GatedDeltaNet`].
    ///
    /// # Errors
    /// When the sources or `snapshots` do not fit; see [`infer`].
    pub fn gated_delta_net(&mut self, sources: [TensorId; 6], snapshots: u32) -> Made {
        self.push(Op::GatedDeltaNet { snapshots }, &sources.map(Some))
    }
}
