//! What every operation gives for sources that fit it, and how few or many sources it takes.

use super::{ATTN, ROPE, Source, apart, f16, f32, i32, i64, make, of, sparse};
use std::collections::{BTreeMap, BTreeSet};
use wgfuse::graph::{
    DType, Glu, Graph, GraphError, LeafKind, MAX_SOURCES, MatrixHint, Op, OpKind, PARAM_WORDS, Precision, Rope,
    RopeMode, SortOrder, ViewOf,
};

mod filling;
mod pointwise;

/// An operation with sources that fit it, and its result.
struct Case {
    op: Op,
    /// The first so many are required.
    required: usize,
    sources: Vec<Option<Source>>,
    dtype: DType,
    ne: [usize; 4],
    /// `None`: new memory, dense.
    shares: Option<Shared>,
}

/// A result in the memory of a source.
struct Shared {
    slot: usize,
    offset: usize,
    nb: [usize; 4],
}

fn fresh(op: Op, required: usize, sources: &[Option<Source>], dtype: DType, ne: [usize; 4]) -> Case {
    Case { op, required, sources: sources.to_vec(), dtype, ne, shares: None }
}

fn shared(op: Op, sources: &[Option<Source>], dtype: DType, ne: [usize; 4], at: (usize, usize, [usize; 4])) -> Case {
    let (slot, offset, nb) = at;
    let shares = Some(Shared { slot, offset, nb });
    Case { op, required: sources.len(), sources: sources.to_vec(), dtype, ne, shares }
}

use DType::{BF16, F16, F32, I32, I64};

/// Cases for every operation, quantities all different so that no two are mistaken for each other.
fn cases() -> Vec<Case> {
    let scale = |in_place| Op::Scale { scale: 2.0, bias: 1.0, in_place };
    let glu = |swapped| Op::Glu { glu: Glu::Swiglu, swapped };
    let soft_max = Op::SoftMax { scale: 0.5, max_bias: 8.0 };
    let x = f32([8, 3, 4, 6]);
    let mut cases = vec![
        shared(
            Op::View { ne: [2, 3, 1, 1], nb: [4, 32, 96, 96], offset: 8 },
            &[x],
            F32,
            [2, 3, 1, 1],
            (0, 8, [4, 32, 96, 96]),
        ),
        // A window may broadcast, and be empty.
        shared(
            Op::View { ne: [8, 5, 1, 1], nb: [4, 0, 0, 0], offset: 0 },
            &[x],
            F32,
            [8, 5, 1, 1],
            (0, 0, [4, 0, 0, 0]),
        ),
        shared(
            Op::View { ne: [8, 0, 1, 1], nb: [4, 32, 32, 32], offset: 2304 },
            &[x],
            F32,
            [8, 0, 1, 1],
            (0, 2304, [4, 32, 32, 32]),
        ),
        shared(Op::Reshape { ne: [24, 2, 12, 1] }, &[x], F32, [24, 2, 12, 1], (0, 0, [4, 96, 192, 2304])),
        shared(Op::Permute { axes: [0, 2, 1, 3] }, &[x], F32, [8, 4, 3, 6], (0, 0, [4, 96, 32, 384])),
        shared(Op::Permute { axes: [2, 0, 3, 1] }, &[x], F32, [3, 6, 8, 4], (0, 0, [32, 384, 4, 96])),
        shared(Op::Transpose, &[apart(f16([8, 3, 4, 1]))], F16, [3, 8, 4, 1], (0, 0, [18, 2, 54, 216])),
        fresh(Op::GetRows, 2, &[apart(f16([8, 9, 4, 6])), i32([5, 4, 6, 1])], F32, [8, 5, 4, 6]),
        fresh(Op::GetRows, 2, &[i32([8, 9, 1, 1]), sparse(i32([5, 1, 1, 1]))], I32, [8, 5, 1, 1]),
        shared(
            Op::SetRows,
            &[apart(f32([8, 5, 4, 6])), i64([5, 2, 3, 1]), apart(f16([8, 9, 4, 6]))],
            F16,
            [8, 9, 4, 6],
            (2, 0, [2, 18, 162, 648]),
        ),
        shared(
            Op::SetRows,
            &[f32([8, 5, 1, 1]), i32([5, 1, 1, 1]), f32([8, 9, 1, 1])],
            F32,
            [8, 9, 1, 1],
            (2, 0, [4, 32, 288, 288]),
        ),
        shared(Op::Cpy, &[sparse(x), f16([24, 24, 1, 1])], F16, [24, 24, 1, 1], (1, 0, [2, 48, 1152, 1152])),
        shared(
            Op::Cpy,
            &[i32([8, 3, 1, 1]), sparse(i64([24, 1, 1, 1]))],
            I64,
            [24, 1, 1, 1],
            (1, 0, [16, 384, 384, 384]),
        ),
        fresh(Op::Cont { ne: [24, 24, 1, 1] }, 1, &[sparse(of(BF16, [8, 3, 4, 6]))], BF16, [24, 24, 1, 1]),
        fresh(Op::MUL_MAT, 2, &[apart(of(BF16, [8, 9, 2, 3])), sparse(f32([8, 5, 4, 6]))], F32, [9, 5, 4, 6]),
        fresh(
            Op::MUL_MAT_ID,
            3,
            &[apart(f16([8, 9, 7, 1])), f32([8, 2, 5, 1]), sparse(i32([4, 5, 1, 1]))],
            F32,
            [9, 4, 5, 1],
        ),
        fresh(scale(false), 1, &[sparse(x)], F32, [8, 3, 4, 6]),
        shared(scale(true), &[apart(f32([8, 3, 1, 1]))], F32, [8, 3, 1, 1], (0, 0, [4, 36, 108, 108])),
        fresh(Op::Repeat { ne: [16, 3, 8, 6] }, 1, &[sparse(f16([8, 3, 4, 6]))], F16, [16, 3, 8, 6]),
        fresh(Op::Concat { dim: 0 }, 2, &[i64([8, 3, 1, 1]), sparse(i64([2, 3, 1, 1]))], I64, [10, 3, 1, 1]),
        fresh(Op::Concat { dim: 3 }, 2, &[f16([8, 3, 4, 6]), f16([8, 3, 4, 1])], F16, [8, 3, 4, 7]),
        fresh(Op::Norm { eps: 0.0 }, 1, &[apart(x)], F32, [8, 3, 4, 6]),
        fresh(Op::RmsNorm { eps: 1e-5 }, 1, &[x], F32, [8, 3, 4, 6]),
        fresh(soft_max, 1, &[apart(x), f16([8, 5, 2, 3]), f32([4, 1, 1, 1])], F32, [8, 3, 4, 6]),
        fresh(soft_max, 1, &[x, None, None], F32, [8, 3, 4, 6]),
        fresh(soft_max, 1, &[x, None, f32([4, 1, 1, 1])], F32, [8, 3, 4, 6]),
        fresh(Op::Rope(ROPE), 2, &[apart(f16([8, 3, 4, 6])), i32([4, 1, 1, 1]), f32([2, 1, 1, 1])], F16, [8, 3, 4, 6]),
        fresh(Op::Rope(ROPE), 2, &[x, i32([4, 1, 1, 1]), None], F32, [8, 3, 4, 6]),
        fresh(Op::RopeBack(ROPE), 2, &[apart(x), i32([4, 1, 1, 1]), f32([2, 1, 1, 1])], F32, [8, 3, 4, 6]),
        fresh(
            Op::Rope(Rope { mode: RopeMode::Vision { sections: [2, 2, 0, 0] }, ..ROPE }),
            2,
            &[x, i32([16, 1, 1, 1]), f32([4, 1, 1, 1])],
            F32,
            [8, 3, 4, 6],
        ),
        fresh(
            Op::FlashAttn(ATTN),
            3,
            &[
                apart(f32([8, 5, 4, 6])),
                apart(f16([8, 7, 2, 3])),
                of(BF16, [10, 7, 2, 3]),
                f16([7, 9, 4, 2]),
                f32([4, 1, 1, 1]),
            ],
            F32,
            [10, 4, 5, 6],
        ),
        fresh(
            Op::FlashAttn(ATTN),
            3,
            &[f32([8, 5, 4, 1]), f32([8, 7, 4, 1]), f32([8, 7, 4, 1]), None, None],
            F32,
            [8, 4, 5, 1],
        ),
        fresh(Op::SumRows, 1, &[sparse(x)], F32, [1, 3, 4, 6]),
        fresh(Op::Sum, 1, &[sparse(f16([8, 3, 4, 6]))], F16, [1; 4]),
        fresh(Op::Sum, 1, &[f32([0, 3, 1, 1])], F32, [1; 4]),
        fresh(Op::Mean, 1, &[sparse(x)], F32, [1, 3, 4, 6]),
        fresh(Op::CumSum, 1, &[apart(x)], F32, [8, 3, 4, 6]),
        fresh(Op::CountEqual, 2, &[sparse(i32([8, 3, 4, 6])), i32([8, 3, 4, 6])], I64, [1; 4]),
        fresh(Op::Argmax, 1, &[apart(f32([8, 3, 1, 1]))], I32, [3, 1, 1, 1]),
        fresh(Op::TopK { k: 5 }, 1, &[apart(x)], I32, [5, 3, 4, 6]),
        fresh(Op::L2Norm { eps: 1e-5 }, 1, &[sparse(x)], F32, [8, 3, 4, 6]),
        fresh(Op::GroupNorm { groups: 3, eps: 1e-5 }, 1, &[sparse(x)], F32, [8, 3, 4, 6]),
        fresh(Op::OutProd, 2, &[apart(of(BF16, [8, 3, 2, 2])), sparse(f32([5, 3, 4, 6]))], F32, [8, 5, 4, 6]),
        fresh(Op::SolveTri, 2, &[f32([3, 3, 4, 6]), f32([8, 3, 4, 6])], F32, [8, 3, 4, 6]),
        fresh(Op::GetRowsBack { rows: 9 }, 2, &[apart(f16([8, 3, 1, 1])), i32([3, 1, 1, 1])], F32, [8, 9, 1, 1]),
        fresh(Op::RepeatBack { ne: [4, 1, 2, 6] }, 1, &[sparse(x)], F32, [4, 1, 2, 6]),
        fresh(Op::RmsNormBack { eps: 1e-5 }, 2, &[apart(x), x], F32, [8, 3, 4, 6]),
        fresh(Op::SoftMaxBack { scale: 0.5, max_bias: 8.0 }, 2, &[apart(x), x], F32, [8, 3, 4, 6]),
        fresh(Op::CrossEntropyLoss, 2, &[apart(x), x], F32, [1; 4]),
        fresh(Op::CrossEntropyLossBack, 3, &[f32([1; 4]), apart(x), x], F32, [8, 3, 4, 6]),
        shared(
            Op::OptStepAdamW,
            &[x, sparse(x), sparse(x), x, f32([7, 1, 1, 1])],
            F32,
            [8, 3, 4, 6],
            (0, 0, [4, 32, 96, 384]),
        ),
        shared(Op::OptStepSgd, &[x, sparse(x), f32([2, 1, 1, 1])], F32, [8, 3, 4, 6], (0, 0, [4, 32, 96, 384])),
        fresh(Op::Argsort { order: SortOrder::Descending }, 1, &[apart(x)], I32, [8, 3, 4, 6]),
        fresh(Op::Clamp { min: -1.0, max: 1.0 }, 1, &[sparse(x)], F32, [8, 3, 4, 6]),
        fresh(glu(true), 1, &[apart(f16([8, 3, 4, 6])), None], F16, [4, 3, 4, 6]),
        fresh(glu(false), 1, &[apart(x), x], F32, [8, 3, 4, 6]),
        fresh(Op::Glu { glu: Glu::Geglu, swapped: false }, 1, &[x], F32, [4, 3, 4, 6]),
        fresh(Op::SsmConv, 2, &[apart(f32([10, 5, 2, 1])), f32([4, 5, 1, 1])], F32, [5, 7, 2, 1]),
        fresh(
            Op::GatedDeltaNet { snapshots: 3 },
            6,
            &[
                apart(f32([8, 2, 5, 7])),
                f32([8, 2, 5, 7]),
                apart(f32([8, 6, 5, 7])),
                f32([1, 6, 5, 7]),
                f32([1, 6, 5, 7]),
                f32([8, 8, 6, 7]),
            ],
            F32,
            // 5 · 7 rows of attention, then 3 snapshots of 8 rows for each of 7 sequences.
            [48, 35 + 8 * 3 * 7, 1, 1],
        ),
    ];
    for op in [Op::Add, Op::Sub, Op::Mul, Op::Div] {
        cases.push(fresh(op, 2, &[sparse(f16([8, 3, 4, 6])), sparse(f32([4, 1, 2, 3]))], F16, [8, 3, 4, 6]));
    }
    cases.extend(filling::cases());
    cases.extend(pointwise::cases());
    cases
}

fn dense_strides(dtype: DType, ne: [usize; 4]) -> [usize; 4] {
    let unit = dtype.block_bytes();
    let row = unit * ne[0] / dtype.block_size();
    [unit, row, row * ne[1], row * ne[1] * ne[2]]
}

#[test]
fn results_have_the_type_shape_and_memory_of_their_operation() {
    let mut covered = BTreeSet::from([OpKind::None]);
    for case in cases() {
        let label = format!("{:?} of {:?}", case.op, case.sources);
        covered.insert(case.op.kind());
        let mut graph = Graph::new();
        let sources = make(&mut graph, &case.sources);
        let id = graph.push(case.op, &sources).unwrap_or_else(|error| panic!("{label}: {error}"));
        let result = graph.tensor(id);
        assert_eq!((result.dtype(), result.ne()), (case.dtype, case.ne), "{label}");
        assert_eq!((result.op(), result.kind(), result.leaf()), (&case.op, case.op.kind(), None), "{label}");
        assert!(result.sources().eq(sources.iter().copied().flatten()), "{label}: sources");
        assert_eq!(result.source_slots()[..sources.len()], sources, "{label}: slots");
        let expected = match &case.shares {
            None => (dense_strides(case.dtype, case.ne), None, id),
            Some(Shared { slot, offset, nb }) => {
                let root = graph.root(sources[*slot].expect("the source that owns the memory"));
                (*nb, Some(ViewOf { root, offset: *offset }), root)
            }
        };
        assert_eq!((result.nb(), result.view(), graph.root(id)), expected, "{label}");
    }
    assert!(covered.into_iter().eq(OpKind::ALL.iter().copied()), "every operation has a case");
}

#[test]
fn required_sources_must_be_there_and_no_others() {
    for case in cases() {
        let mut graph = Graph::new();
        let sources = make(&mut graph, &case.sources);
        let spare = graph.leaf("", LeafKind::Input, F32, [4, 1, 1, 1]).expect("a leaf");
        let (least, most) = (case.required, arity(case.op.kind()).1);
        assert_eq!(least, arity(case.op.kind()).0);
        let expected = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let mut check = |given: &[_]| {
            let count = given.iter().filter(|source: &&Option<_>| source.is_some()).count();
            let error = graph.push(case.op, given).expect_err("the wrong number of sources");
            let arity = GraphError::Arity { op: case.op.kind(), given: count, expected: expected.clone() };
            assert_eq!(error, arity, "{:?}", case.op);
            assert_eq!(error.to_string(), format!("{}: {count} sources given, expected {expected}", case.op.kind()));
        };
        if least > 0 {
            check(&[]);
            check(&sources[..least - 1]);
        }
        for slot in 0..least {
            let mut holed = sources.clone();
            holed[slot] = None;
            check(&holed);
        }
        // One more than fit, in the first slot that must stay empty.
        let mut padded = sources;
        padded.resize(most, None);
        padded.push(Some(spare));
        check(&padded);
        // Slots that stay empty may be spelled out.
        padded.pop();
        padded.resize(MAX_SOURCES, None);
        assert!(graph.push(case.op, &padded).is_ok(), "{:?}", case.op);
    }
}

/// How few and how many sources each operation takes.
fn arity(kind: OpKind) -> (usize, usize) {
    match kind {
        OpKind::None | OpKind::Arange => (0, 0),
        OpKind::View
        | OpKind::Reshape
        | OpKind::Permute
        | OpKind::Transpose
        | OpKind::Cont
        | OpKind::Scale
        | OpKind::Repeat
        | OpKind::Norm
        | OpKind::RmsNorm
        | OpKind::SumRows
        | OpKind::Sum
        | OpKind::Mean
        | OpKind::CumSum
        | OpKind::Argmax
        | OpKind::TopK
        | OpKind::L2Norm
        | OpKind::GroupNorm
        | OpKind::RepeatBack
        | OpKind::Argsort
        | OpKind::Clamp
        | OpKind::Sqr
        | OpKind::Sqrt
        | OpKind::Sin
        | OpKind::Cos
        | OpKind::Log
        | OpKind::LeakyRelu
        | OpKind::Abs
        | OpKind::Sgn
        | OpKind::Neg
        | OpKind::Step
        | OpKind::Tanh
        | OpKind::Elu
        | OpKind::Relu
        | OpKind::Sigmoid
        | OpKind::Gelu
        | OpKind::GeluQuick
        | OpKind::Silu
        | OpKind::HardSwish
        | OpKind::HardSigmoid
        | OpKind::Exp
        | OpKind::Expm1
        | OpKind::Softplus
        | OpKind::GeluErf
        | OpKind::Xielu
        | OpKind::Floor
        | OpKind::Ceil
        | OpKind::Round
        | OpKind::Trunc
        | OpKind::Dup
        | OpKind::Fill
        | OpKind::TimestepEmbedding
        | OpKind::Tri
        | OpKind::Diag
        | OpKind::DiagMaskInf
        | OpKind::DiagMaskZero => (1, 1),
        OpKind::Reglu
        | OpKind::Geglu
        | OpKind::Swiglu
        | OpKind::SwigluOai
        | OpKind::GegluErf
        | OpKind::GegluQuick
        | OpKind::SwigluClamp => (1, 2),
        OpKind::SoftMax => (1, 3),
        OpKind::GetRows
        | OpKind::Cpy
        | OpKind::MulMat
        | OpKind::Add
        | OpKind::Sub
        | OpKind::Mul
        | OpKind::Div
        | OpKind::Concat
        | OpKind::Acc
        | OpKind::Set
        | OpKind::SiluBack
        | OpKind::CountEqual
        | OpKind::OutProd
        | OpKind::SolveTri
        | OpKind::GetRowsBack
        | OpKind::RmsNormBack
        | OpKind::SoftMaxBack
        | OpKind::CrossEntropyLoss
        | OpKind::SsmConv => (2, 2),
        OpKind::Rope | OpKind::RopeBack => (2, 3),
        OpKind::SetRows | OpKind::MulMatId | OpKind::AddId | OpKind::CrossEntropyLossBack | OpKind::OptStepSgd => {
            (3, 3)
        }
        OpKind::OptStepAdamW => (5, 5),
        OpKind::FlashAttn => (3, 5),
        OpKind::GatedDeltaNet => (6, 6),
    }
}

#[test]
fn a_leaf_is_no_operation_and_eleven_sources_are_too_many() {
    let mut graph = Graph::new();
    let x = graph.leaf("x", LeafKind::Input, F32, [4, 1, 1, 1]).expect("a leaf");
    for sources in [&[][..], &[Some(x)]] {
        let error = graph.push(Op::None, sources).expect_err("no leaf");
        assert!(matches!(error, GraphError::Arity { op: OpKind::None, .. }), "{error}");
    }
    let error = graph.push(Op::Add, &[Some(x); 11]).expect_err("too many");
    assert_eq!(error, GraphError::Arity { op: OpKind::Add, given: 11, expected: "at most 10".to_owned() });
}

#[test]
fn labels_are_ggmls_names() {
    let labels: Vec<&str> = OpKind::ALL.iter().map(|kind| kind.label()).collect();
    let expected = "NONE VIEW RESHAPE PERMUTE TRANSPOSE GET_ROWS SET_ROWS CPY CONT DUP MUL_MAT MUL_MAT_ID OUT_PROD \
        SOLVE_TRI ADD ADD_ID SUB MUL DIV SCALE REPEAT CONCAT ACC SET FILL ARANGE TIMESTEP_EMBEDDING TRI DIAG \
        DIAG_MASK_INF DIAG_MASK_ZERO NORM RMS_NORM L2_NORM GROUP_NORM SOFT_MAX ROPE ROPE_BACK FLASH_ATTN_EXT \
        SUM_ROWS SUM MEAN CUMSUM COUNT_EQUAL ARGMAX ARGSORT TOP_K CLAMP SQR SQRT SIN COS LOG LEAKY_RELU \
        ABS SGN NEG STEP TANH ELU RELU SIGMOID GELU GELU_QUICK SILU HARDSWISH HARDSIGMOID EXP EXPM1 SOFTPLUS GELU_ERF \
        XIELU FLOOR CEIL ROUND TRUNC REGLU GEGLU SWIGLU SWIGLU_OAI GEGLU_ERF GEGLU_QUICK SWIGLU_CLAMP \
        SSM_CONV GATED_DELTA_NET SILU_BACK GET_ROWS_BACK REPEAT_BACK RMS_NORM_BACK SOFT_MAX_BACK \
        CROSS_ENTROPY_LOSS CROSS_ENTROPY_LOSS_BACK OPT_STEP_ADAMW OPT_STEP_SGD";
    assert_eq!(labels.join(" "), expected);
    assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), labels.len(), "no two kinds share a label");
    assert!(OpKind::ALL.iter().all(|kind| kind.to_string() == kind.label()));
    let views: Vec<&str> = OpKind::ALL.iter().filter(|kind| kind.is_view()).map(|kind| kind.label()).collect();
    assert_eq!(views, ["NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"]);
}

#[test]
fn words_are_what_ggml_stores() {
    let bits = f32::to_bits;
    let expected: Vec<(Op, Vec<u32>)> = vec![
        (Op::View { ne: [1; 4], nb: [4; 4], offset: 0x5_0000_0008 }, vec![8, 5]),
        (Op::Permute { axes: [0, 2, 1, 3] }, vec![0, 2, 1, 3]),
        (Op::Scale { scale: 2.0, bias: 3.0, in_place: true }, vec![bits(2.0), bits(3.0)]),
        (Op::MulMat { precision: Precision::F32, hint: MatrixHint::None }, vec![10]),
        (Op::MulMat { precision: Precision::Default, hint: MatrixHint::Hadamard }, vec![0, 1]),
        (Op::MulMatId { precision: Precision::F32 }, vec![0, 0, 0, 10]),
        (Op::Concat { dim: 2 }, vec![2]),
        (Op::Norm { eps: 1e-5 }, vec![bits(1e-5)]),
        (Op::RmsNorm { eps: 1e-6 }, vec![bits(1e-6)]),
        (Op::L2Norm { eps: 1e-6 }, vec![bits(1e-6)]),
        (Op::GroupNorm { groups: 32, eps: 1e-6 }, vec![32, bits(1e-6)]),
        (Op::RmsNormBack { eps: 1e-6 }, vec![bits(1e-6)]),
        (Op::SoftMaxBack { scale: 0.5, max_bias: 8.0 }, vec![bits(0.5), bits(8.0)]),
        (Op::SoftMax { scale: 0.5, max_bias: 8.0 }, vec![bits(0.5), bits(8.0)]),
        (Op::Rope(ROPE), [&[0, 4, 2, 0, 512][..], &[10_000.0, 0.5, 0.25, 1.5, 32.0, 2.0].map(bits)].concat()),
        (Op::Rope(Rope { mode: RopeMode::Normal, n_dims: 6, ..ROPE }), {
            [&[0, 6, 0, 0, 512][..], &[10_000.0, 0.5, 0.25, 1.5, 32.0, 2.0].map(bits)].concat()
        }),
        (Op::RopeBack(Rope { mode: RopeMode::Mrope { sections: [3, 2, 1, 4] }, first_dim: 2, ..ROPE }), {
            [&[0, 4, 8, 0, 512][..], &[10_000.0, 0.5, 0.25, 1.5, 32.0, 2.0].map(bits), &[3, 2, 1, 4, 2]].concat()
        }),
        (Op::FlashAttn(ATTN), vec![bits(0.125), bits(8.0), bits(30.0), 10]),
        (
            Op::FlashAttn(wgfuse::graph::FlashAttn { precision: Precision::Default, ..ATTN }),
            vec![bits(0.125), bits(8.0), bits(30.0)],
        ),
        (Op::Argsort { order: SortOrder::Descending }, vec![1]),
        (Op::Clamp { min: -1.0, max: 1.0 }, vec![bits(-1.0), bits(1.0)]),
        (Op::GatedDeltaNet { snapshots: 3 }, vec![3]),
    ];
    for (op, mut words) in expected.into_iter().chain(filling::words()).chain(pointwise::words()) {
        words.resize(PARAM_WORDS, 0);
        assert_eq!(op.words().to_vec(), words, "{op:?}");
    }
    // Whatever is not above has no parameters beside its result's layout.
    let without = cases().into_iter().filter(|case| case.op.words() == [0; PARAM_WORDS]).map(|case| case.op.kind());
    let mut kinds = BTreeMap::new();
    without.for_each(|kind| *kinds.entry(kind).or_insert(0) += 1);
    let expected = "RESHAPE TRANSPOSE GET_ROWS SET_ROWS CPY CONT DUP MUL_MAT MUL_MAT_ID OUT_PROD SOLVE_TRI ADD \
        ADD_ID SUB MUL DIV REPEAT TRI DIAG SUM_ROWS SUM MEAN CUMSUM COUNT_EQUAL ARGMAX TOP_K SQR SQRT SIN COS LOG ABS REGLU SSM_CONV \
        SILU_BACK GET_ROWS_BACK REPEAT_BACK \
        CROSS_ENTROPY_LOSS CROSS_ENTROPY_LOSS_BACK OPT_STEP_ADAMW OPT_STEP_SGD";
    let kinds: Vec<&str> = kinds.keys().map(|kind: &OpKind| kind.label()).collect();
    let kinds: Vec<&str> = kinds.into_iter().filter(|kind| !["VIEW", "CONCAT", "NORM"].contains(kind)).collect();
    assert_eq!(kinds.join(" "), expected);
}
