//! Random operations over random sources and parameters, most of which do not fit.

use proptest::prelude::*;
use wgfuse::graph::{
    DType, FlashAttn, Glu, Graph, LeafKind, Op, OpKind, Precision, Rope, RopeMode, SortOrder, Tensor, TensorId,
    Triangle, Unary, Window, Xielu,
};

/// Sizes that often fit each other, and sizes whose products or sums overflow.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        12 => prop::sample::select(vec![1usize, 1, 1, 2, 4, 8]),
        2 => prop::sample::select(vec![0usize, 3, 6, 16]),
        1 => prop::sample::select(vec![1 << 31, 1 << 40, 1 << 60, usize::MAX / 4, usize::MAX - 3, usize::MAX]),
    ]
}

/// Strides and offsets.
fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        12 => prop::sample::select(vec![0usize, 4, 8, 16, 32, 64]),
        2 => prop::sample::select(vec![1usize, 2, 6, 128, 1000]),
        1 => prop::sample::select(vec![1 << 40, 1 << 61, 1 << 62, 1 << 63, usize::MAX - 3, usize::MAX]),
    ]
}

/// What a step may use of: whichever operation it becomes takes its parameters from here.
#[derive(Clone, Debug)]
struct Step {
    kind: OpKind,
    ne: [usize; 4],
    nb: [usize; 4],
    offset: usize,
    axes: [u8; 4],
    number: f32,
    count: u32,
    flag: bool,
    dtype: DType,
    leaf: LeafKind,
    /// Sources by how far back they lie; 0 is an empty slot, and the largest numbers are not of this graph.
    sources: Vec<u8>,
}

fn step() -> impl Strategy<Value = Step> {
    let numbers = prop_oneof![4 => Just(1e-5f32), 1 => any::<f32>()];
    let count = prop_oneof![4 => prop::sample::select(vec![1u32, 2, 4]), 1 => any::<u32>()];
    let axes = prop_oneof![2 => Just([0u8, 2, 1, 3]), 1 => Just([1u8, 0, 2, 3]), 1 => any::<[u8; 4]>()];
    let leaves = prop::sample::select(vec![LeafKind::Weight, LeafKind::Input, LeafKind::Cache]);
    let dtypes = prop_oneof![3 => Just(DType::F32), 1 => prop::sample::select(DType::ALL.to_vec())];
    let kinds = prop_oneof![1 => Just(OpKind::None), 5 => prop::sample::select(OpKind::ALL.to_vec())];
    (
        kinds,
        prop::array::uniform4(size()),
        prop::array::uniform4(bytes()),
        bytes(),
        axes,
        (numbers, count, any::<bool>()),
        dtypes,
        leaves,
        prop::collection::vec(prop_oneof![20 => 1u8..8, 1 => any::<u8>()], 0..8),
    )
        .prop_map(|(kind, ne, nb, offset, axes, (number, count, flag), dtype, leaf, sources)| Step {
            kind,
            ne,
            nb,
            offset,
            axes,
            number,
            count,
            flag,
            dtype,
            leaf,
            sources,
        })
}

impl Step {
    fn op(&self) -> Op {
        let &Self { ne, nb, offset, axes, number, count, flag, .. } = self;
        let unary = |unary| Op::Unary(unary);
        let glu = |glu| Op::Glu { glu, swapped: flag };
        let window = Window { nb: [nb[1], nb[2], nb[3]], offset };
        match self.kind {
            OpKind::None => Op::None,
            OpKind::View => Op::View { ne, nb, offset },
            OpKind::Reshape => Op::Reshape { ne },
            OpKind::Permute => Op::Permute { axes },
            OpKind::Transpose => Op::Transpose,
            OpKind::GetRows => Op::GetRows,
            OpKind::SetRows => Op::SetRows,
            OpKind::Cpy => Op::Cpy,
            OpKind::Cont => Op::Cont { ne },
            OpKind::MulMat => Op::MUL_MAT,
            OpKind::MulMatId => Op::MUL_MAT_ID,
            OpKind::Add => Op::Add,
            OpKind::Sub => Op::Sub,
            OpKind::Mul => Op::Mul,
            OpKind::Div => Op::Div,
            OpKind::Scale => Op::Scale { scale: number, bias: number, in_place: flag },
            OpKind::Repeat => Op::Repeat { ne },
            OpKind::Concat => Op::Concat { dim: axes[0] },
            OpKind::Norm => Op::Norm { eps: number },
            OpKind::RmsNorm => Op::RmsNorm { eps: number },
            OpKind::SoftMax => Op::SoftMax { scale: number, max_bias: number },
            OpKind::Rope | OpKind::RopeBack => {
                let sections = [count; 4];
                let rope = Rope {
                    n_dims: count,
                    first_dim: if flag { 0 } else { count },
                    mode: match axes[0] % 5 {
                        0 => RopeMode::Normal,
                        1 => RopeMode::Neox,
                        2 => RopeMode::Mrope { sections },
                        3 => RopeMode::Imrope { sections },
                        _ => RopeMode::Vision { sections },
                    },
                    n_ctx_orig: count,
                    freq_base: number,
                    freq_scale: number,
                    ext_factor: number,
                    attn_factor: number,
                    beta_fast: number,
                    beta_slow: number,
                };
                if self.kind == OpKind::Rope { Op::Rope(rope) } else { Op::RopeBack(rope) }
            }
            OpKind::FlashAttn => Op::FlashAttn(FlashAttn {
                scale: number,
                max_bias: number,
                logit_softcap: number,
                precision: if flag { Precision::F32 } else { Precision::Default },
            }),
            OpKind::SumRows => Op::SumRows,
            OpKind::Sum => Op::Sum,
            OpKind::Mean => Op::Mean,
            OpKind::CumSum => Op::CumSum,
            OpKind::CountEqual => Op::CountEqual,
            OpKind::Argmax => Op::Argmax,
            OpKind::TopK => Op::TopK { k: ne[0] },
            OpKind::L2Norm => Op::L2Norm { eps: number },
            OpKind::GroupNorm => Op::GroupNorm { groups: count, eps: number },
            OpKind::OutProd => Op::OutProd,
            OpKind::SolveTri => Op::SolveTri,
            OpKind::GetRowsBack => Op::GetRowsBack { rows: ne[1] },
            OpKind::RepeatBack => Op::RepeatBack { ne },
            OpKind::RmsNormBack => Op::RmsNormBack { eps: number },
            OpKind::SoftMaxBack => Op::SoftMaxBack { scale: number, max_bias: number },
            OpKind::CrossEntropyLoss => Op::CrossEntropyLoss,
            OpKind::CrossEntropyLossBack => Op::CrossEntropyLossBack,
            OpKind::OptStepAdamW => Op::OptStepAdamW,
            OpKind::OptStepSgd => Op::OptStepSgd,
            OpKind::Argsort => Op::Argsort { order: if flag { SortOrder::Ascending } else { SortOrder::Descending } },
            OpKind::Clamp => Op::Clamp { min: number, max: -number },
            OpKind::Sqr => Op::Sqr,
            OpKind::Sin => Op::Sin,
            OpKind::Sqrt => Op::Sqrt,
            OpKind::Cos => Op::Cos,
            OpKind::Log => Op::Log,
            OpKind::LeakyRelu => Op::LeakyRelu { negative_slope: number },
            OpKind::Xielu => Op::Xielu(Xielu { alpha_n: number, alpha_p: number, beta: number, eps: number }),
            OpKind::SiluBack => Op::SiluBack,
            OpKind::Dup => Op::Dup,
            OpKind::AddId => Op::AddId,
            OpKind::Acc => Op::Acc { window, in_place: flag },
            OpKind::Set => Op::Set { window, in_place: flag },
            OpKind::Fill => Op::Fill { value: number, in_place: flag },
            OpKind::Arange => Op::Arange { start: 0.0, stop: number, step: number.abs() / 8.0 },
            OpKind::TimestepEmbedding => Op::TimestepEmbedding { dim: count, max_period: count },
            OpKind::Tri => Op::Tri { part: Triangle::ALL[usize::from(axes[0] % 4)] },
            OpKind::Diag => Op::Diag,
            OpKind::DiagMaskInf => Op::DiagMaskInf { n_past: count, in_place: flag },
            OpKind::DiagMaskZero => Op::DiagMaskZero { n_past: count, in_place: flag },
            OpKind::Abs => unary(Unary::Abs),
            OpKind::Sgn => unary(Unary::Sgn),
            OpKind::Neg => unary(Unary::Neg),
            OpKind::Step => unary(Unary::Step),
            OpKind::Tanh => unary(Unary::Tanh),
            OpKind::Elu => unary(Unary::Elu),
            OpKind::Relu => unary(Unary::Relu),
            OpKind::Sigmoid => unary(Unary::Sigmoid),
            OpKind::Gelu => unary(Unary::Gelu),
            OpKind::GeluQuick => unary(Unary::GeluQuick),
            OpKind::Silu => unary(Unary::Silu),
            OpKind::HardSwish => unary(Unary::HardSwish),
            OpKind::HardSigmoid => unary(Unary::HardSigmoid),
            OpKind::Exp => unary(Unary::Exp),
            OpKind::Expm1 => unary(Unary::Expm1),
            OpKind::Softplus => unary(Unary::Softplus),
            OpKind::GeluErf => unary(Unary::GeluErf),
            OpKind::Floor => unary(Unary::Floor),
            OpKind::Ceil => unary(Unary::Ceil),
            OpKind::Round => unary(Unary::Round),
            OpKind::Trunc => unary(Unary::Trunc),
            OpKind::Reglu => glu(Glu::Reglu),
            OpKind::Geglu => glu(Glu::Geglu),
            OpKind::Swiglu => glu(Glu::Swiglu),
            OpKind::SwigluOai => glu(Glu::SwigluOai { alpha: number, limit: number }),
            OpKind::GegluErf => glu(Glu::GegluErf),
            OpKind::GegluQuick => glu(Glu::GegluQuick),
            OpKind::SwigluClamp => glu(Glu::SwigluClamp { limit: number }),
            OpKind::SsmConv => Op::SsmConv,
            OpKind::GatedDeltaNet => Op::GatedDeltaNet { snapshots: count },
        }
    }

    /// Adds the step to the graph of these tensors, if it fits.
    fn push(&self, graph: &mut Graph, ids: &[TensorId], foreign: TensorId) -> Option<TensorId> {
        if self.kind == OpKind::None && !self.flag {
            return graph.leaf("", self.leaf, self.dtype, self.ne).ok();
        }
        let pick = |&back: &u8| match usize::from(back) {
            0 => None,
            back @ 1..=250 => Some(ids[ids.len() - 1 - (back - 1) % ids.len()]),
            _ => Some(foreign),
        };
        let sources: Vec<_> = self.sources.iter().map(pick).collect();
        graph.push(self.op(), &sources).ok()
    }
}

/// What holds of every tensor of a graph.
fn sound(graph: &Graph, id: TensorId) {
    let tensor: &Tensor = graph.tensor(id);
    let layout = tensor.layout();
    let label = format!("{:?} of {layout:?}", tensor.op());
    let factors = layout.ne.iter().map(|&n| n.max(1));
    assert!(factors.clone().try_fold(1usize, |product, n| product.checked_mul(n)).is_some(), "{label}: elements");
    let extent = layout.checked_extent().unwrap_or_else(|| panic!("{label}: extent"));
    assert!(layout.nb.iter().all(|nb| nb % layout.dtype.block_bytes() == 0), "{label}: strides");
    let root = graph.root(id);
    assert_eq!((graph.tensor(root).view(), graph.root(root)), (None, root), "{label}: a root is no view");
    let offset = tensor.view().map_or(0, |view| view.offset);
    let end = offset.checked_add(extent).unwrap_or_else(|| panic!("{label}: end"));
    assert!(end <= graph.tensor(root).layout().extent(), "{label}: inside its root");
    assert_eq!(offset % layout.dtype.block_bytes(), 0, "{label}: starts at an element");
    if tensor.view().is_none() {
        assert!(layout.is_contiguous(), "{label}: own memory is dense");
    }
    for source in tensor.sources() {
        assert!(source.index() < id.index(), "{label}: sources come first");
    }
}

/// Every tensor after its sources, each once, and uses that add up.
fn expanded(graph: &Graph) {
    let mut uses = vec![0; graph.tensors().len()];
    let mut seen = vec![false; graph.tensors().len()];
    graph.leaves().iter().for_each(|leaf| seen[leaf.index()] = true);
    for &node in graph.nodes() {
        assert!(!std::mem::replace(&mut seen[node.index()], true), "each once");
        for source in graph.tensor(node).sources() {
            assert!(seen[source.index()], "after its sources");
            uses[source.index()] += 1;
        }
    }
    for &id in graph.nodes().iter().chain(graph.leaves()) {
        assert_eq!(graph.uses(id), uses[id.index()]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_is_accepted_is_sound(steps in prop::collection::vec(step(), 1..40)) {
        let mut others = Graph::new();
        let mut foreign = others.leaf("", LeafKind::Input, DType::F32, [1; 4]).expect("a leaf");
        for _ in 0..100 {
            foreign = others.sqr(foreign).expect("a square");
        }
        let mut graph = Graph::new();
        let mut ids = vec![graph.leaf("", LeafKind::Input, DType::F32, [8, 4, 2, 1]).expect("a leaf")];
        for step in &steps {
            let Some(id) = step.push(&mut graph, &ids, foreign) else {
                prop_assert_eq!(graph.tensors().len(), ids.len(), "a refusal changes nothing");
                continue;
            };
            prop_assert_eq!(id.index(), ids.len());
            ids.push(id);
            sound(&graph, id);
            if step.flag {
                graph.expand(id).expect("its own id");
            }
        }
        expanded(&graph);
    }
}
