//! What every operation refuses, and that the refusal says what was given and what would fit.

use super::refuses_pointwise::{filling, pointwise};
use super::refuses_reductions::reductions;
use super::{ATTN, ROPE, Source, apart, f16, f32, i32, i64, make, of, sparse};
use std::collections::BTreeSet;
use wgfuse::graph::DType::{BF16, F16, F32, I32, I64};
use wgfuse::graph::{BlockFormat, DType, Glu, Graph, GraphError, LeafKind, Op, OpKind, Rope, RopeMode, SortOrder};

const READABLE: &str = "a floating-point type, quantized or not";
const WRITABLE: &str = "a floating-point type, or a quantized one that can be written";

/// Why an operation does not take what it was given.
pub enum Why {
    /// This source does not fit; what would.
    Source(usize, &'static str),
    /// This parameter does not fit: its value, and what would.
    Parameter(&'static str, &'static str, &'static str),
    /// The result, of this type and shape, has no size.
    Size(DType, [usize; 4]),
    /// The window ends at this byte of so many.
    Bounds(usize, usize),
}

use Why::{Bounds, Parameter, Size};

pub type Case = (Op, Vec<Option<Source>>, Why);

pub fn case(op: Op, sources: &[Option<Source>], why: Why) -> Case {
    (op, sources.to_vec(), why)
}

const X: Option<Source> = f32([8, 3, 4, 6]);

/// Larger than half of what there is.
const HUGE: usize = 1 << 60;

fn check((op, sources, why): Case) {
    let label = format!("{op:?} of {sources:?}");
    let mut graph = Graph::new();
    let ids = make(&mut graph, &sources);
    let before = graph.clone();
    let error = match graph.push(op, &ids) {
        Err(error) => error,
        Ok(id) => panic!("{label} gives {:?}", graph.tensor(id)),
    };
    assert_eq!(graph, before, "{label}: a refusal changes nothing");
    let kind = op.kind();
    let (expected, message) = match why {
        Why::Source(index, expected) => {
            let found = graph.tensor(ids[index].expect("the source that does not fit")).layout().to_string();
            let message = format!("{kind}: source {index} is {found}, expected {expected}");
            (GraphError::Source { op: kind, index, found, expected: expected.to_owned() }, message)
        }
        Parameter(name, found, expected) => {
            let message = format!("{kind}: {name} is {found}, expected {expected}");
            let (found, expected) = (found.to_owned(), expected.to_owned());
            (GraphError::Parameter { op: kind, name, found, expected }, message)
        }
        Size(dtype, ne) => {
            let message = format!("{dtype} {ne:?} has no size: it overflows or its rows are not whole blocks");
            (GraphError::Size { dtype, ne }, message)
        }
        Bounds(end, available) => {
            let message = format!("{kind}: the view ends at byte {end} of {available}");
            (GraphError::OutOfBounds { op: kind, end, available }, message)
        }
    };
    assert_eq!(error, expected, "{label}");
    assert_eq!(error.to_string(), message, "{label}");
}

fn views() -> Vec<Case> {
    let view = |ne, nb, offset, why| case(Op::View { ne, nb, offset }, &[X], why);
    let ne = [8, 3, 1, 1];
    let nb = [4, 32, 96, 96];
    let permute = |axes, found| case(Op::Permute { axes }, &[X], Parameter("axes", found, "each of 0 to 3 once"));
    vec![
        view(ne, nb, 2, Parameter("offset", "2", "a multiple of 4 bytes")),
        view(ne, [4, 34, 96, 96], 0, Parameter("nb", "[4, 34, 96, 96]", "multiples of 4 bytes")),
        view([HUGE, 16, 1, 1], nb, 0, Parameter("ne", "[1152921504606846976, 16, 1, 1]", "a product that fits")),
        // Nor may an empty window hide it.
        view([HUGE, 16, 0, 1], nb, 0, Parameter("ne", "[1152921504606846976, 16, 0, 1]", "a product that fits")),
        view(
            [2, 2, 1, 1],
            [4, usize::MAX - 3, 0, 0],
            0,
            Parameter("nb", "[4, 18446744073709551612, 0, 0]", "an extent that fits"),
        ),
        view([8, 3, 4, 7], [4, 32, 96, 384], 0, Bounds(2688, 2304)),
        view([8, 1, 1, 1], [4, 32, 32, 32], 2304, Bounds(2336, 2304)),
        view([8, 0, 1, 1], [4, 32, 32, 32], 2308, Bounds(2308, 2304)),
        view(ne, nb, usize::MAX - 3, Bounds(usize::MAX, 2304)),
        view([1; 4], [4; 4], usize::MAX - 3, Bounds(usize::MAX, 2304)),
        case(Op::Reshape { ne: [8, 72, 1, 1] }, &[sparse(X)], Why::Source(0, "a contiguous tensor")),
        case(Op::Reshape { ne: [8, 71, 1, 1] }, &[X], Parameter("ne", "[8, 71, 1, 1]", "as many elements")),
        case(
            Op::Reshape { ne: [HUGE, 16, 0, 1] },
            &[f32([0, 1, 1, 1])],
            Parameter("ne", "[1152921504606846976, 16, 0, 1]", "as many elements"),
        ),
        case(Op::Reshape { ne: [HUGE, 4, 0, 1] }, &[f32([0, 1, 1, 1])], Size(F32, [HUGE, 4, 0, 1])),
        permute([0, 1, 2, 2], "[0, 1, 2, 2]"),
        permute([0, 1, 2, 4], "[0, 1, 2, 4]"),
        permute([255, 1, 2, 3], "[255, 1, 2, 3]"),
    ]
}

fn rows_and_copies() -> Vec<Case> {
    let (rows, ids, dst) = (f32([8, 5, 4, 6]), i64([5, 2, 3, 1]), f16([8, 9, 4, 6]));
    let ids_expected = "[5, a divisor of 4, a divisor of 6, 1]";
    let get = |a, ids, why| case(Op::GetRows, &[a, ids], why);
    let set = |values, ids, dst, why| case(Op::SetRows, &[values, ids, dst], why);
    vec![
        get(X, i64([5, 4, 6, 1]), Why::Source(1, "i32")),
        get(sparse(X), i32([5, 4, 6, 1]), Why::Source(0, "contiguous rows")),
        get(X, i32([5, 3, 6, 1]), Why::Source(1, "ids [n, 4, 6, 1]")),
        get(X, i32([5, 4, 5, 1]), Why::Source(1, "ids [n, 4, 6, 1]")),
        get(X, i32([5, 4, 6, 2]), Why::Source(1, "ids [n, 4, 6, 1]")),
        get(i64([8, 3, 4, 6]), i32([5, 4, 6, 1]), Why::Source(0, "a floating-point type, quantized or not, or i32")),
        set(f16([8, 5, 4, 6]), ids, dst, Why::Source(0, "f32")),
        set(sparse(rows), ids, dst, Why::Source(0, "contiguous rows")),
        set(rows, f32([5, 2, 3, 1]), dst, Why::Source(1, "i32 or i64")),
        set(rows, ids, i32([8, 9, 4, 6]), Why::Source(2, WRITABLE)),
        set(rows, ids, sparse(dst), Why::Source(2, "contiguous rows")),
        set(rows, ids, f16([7, 9, 4, 6]), Why::Source(2, "[8, n, 4, 6]")),
        set(rows, ids, f16([8, 9, 3, 6]), Why::Source(2, "[8, n, 4, 6]")),
        set(rows, ids, f16([8, 9, 4, 5]), Why::Source(2, "[8, n, 4, 6]")),
        set(rows, i64([4, 2, 3, 1]), dst, Why::Source(1, ids_expected)),
        set(rows, i64([5, 0, 3, 1]), dst, Why::Source(1, ids_expected)),
        set(rows, i64([5, 3, 3, 1]), dst, Why::Source(1, ids_expected)),
        set(rows, i64([5, 2, 0, 1]), dst, Why::Source(1, ids_expected)),
        set(rows, i64([5, 2, 4, 1]), dst, Why::Source(1, ids_expected)),
        set(rows, i64([5, 2, 3, 2]), dst, Why::Source(1, ids_expected)),
        case(Op::Cpy, &[X, f32([8, 3, 4, 5])], Why::Source(1, "576 elements")),
        case(Op::Cpy, &[X, i32([8, 3, 4, 6])], Why::Source(1, WRITABLE)),
        case(Op::Cpy, &[i32([8, 1, 1, 1]), f16([8, 1, 1, 1])], Why::Source(1, "an integer type")),
        case(Op::Cont { ne: [8, 71, 1, 1] }, &[sparse(X)], Parameter("ne", "[8, 71, 1, 1]", "as many elements")),
        case(Op::Cont { ne: [HUGE, 4, 0, 1] }, &[f32([0, 1, 1, 1])], Size(F32, [HUGE, 4, 0, 1])),
        case(
            Op::Repeat { ne: [8, 4, 4, 6] },
            &[f32([8, 3, 1, 1])],
            Parameter("ne", "[8, 4, 4, 6]", "multiples of [8, 3, 1, 1]"),
        ),
        case(
            Op::Repeat { ne: [8, 3, 4, 6] },
            &[f32([8, 0, 1, 1])],
            Parameter("ne", "[8, 3, 4, 6]", "multiples of [8, 0, 1, 1]"),
        ),
        case(Op::Repeat { ne: [HUGE, 2, 1, 1] }, &[f32([1, 1, 1, 1])], Size(F32, [HUGE, 2, 1, 1])),
        case(Op::Concat { dim: 4 }, &[X, X], Parameter("dim", "4", "0 to 3")),
        case(Op::Concat { dim: 1 }, &[X, f32([8, 3, 4, 5])], Why::Source(1, "f32 [8, 3, 4, 6] but along dimension 1")),
        case(Op::Concat { dim: 1 }, &[X, f16([8, 3, 4, 6])], Why::Source(1, "f32 [8, 3, 4, 6] but along dimension 1")),
        case(Op::Concat { dim: 0 }, &[f32([HUGE, 0, 1, 1]); 2], Size(F32, [2 * HUGE, 0, 1, 1])),
    ]
}

fn products() -> Vec<Case> {
    let (a, b) = (f16([8, 9, 2, 3]), f32([8, 5, 4, 6]));
    let (experts, columns, ids) = (f16([8, 9, 7, 1]), f32([8, 2, 5, 1]), i32([4, 5, 1, 1]));
    let expected = "[8, n, a multiple of 2, a multiple of 3]";
    let product = |a, b, why| case(Op::MUL_MAT, &[a, b], why);
    let by_id = |a, b, ids, why| case(Op::MUL_MAT_ID, &[a, b, ids], why);
    vec![
        product(i32([8, 9, 2, 3]), b, Why::Source(0, READABLE)),
        product(sparse(a), b, Why::Source(0, "contiguous rows")),
        product(a, f16([8, 5, 4, 6]), Why::Source(1, "f32")),
        product(a, f32([7, 5, 4, 6]), Why::Source(1, expected)),
        product(a, f32([8, 5, 3, 6]), Why::Source(1, expected)),
        product(a, f32([8, 5, 4, 5]), Why::Source(1, expected)),
        product(f16([8, 9, 0, 3]), b, Why::Source(1, "[8, n, a multiple of 0, a multiple of 3]")),
        product(f16([8, 9, 2, 0]), b, Why::Source(1, "[8, n, a multiple of 2, a multiple of 0]")),
        // Two empty matrices, and a product of more elements than there are addresses.
        product(f32([0, 1 << 33, 1, 1]), f32([0, 1 << 33, 1, 1]), Size(F32, [1 << 33, 1 << 33, 1, 1])),
        by_id(i32([8, 9, 7, 1]), columns, ids, Why::Source(0, READABLE)),
        by_id(sparse(experts), columns, ids, Why::Source(0, "contiguous rows")),
        by_id(experts, f16([8, 2, 5, 1]), ids, Why::Source(1, "f32")),
        by_id(experts, columns, i64([4, 5, 1, 1]), Why::Source(2, "i32")),
        by_id(f16([8, 9, 7, 2]), columns, ids, Why::Source(0, "three dimensions")),
        by_id(experts, f32([7, 2, 5, 1]), ids, Why::Source(1, "[8, columns, tokens, 1]")),
        by_id(experts, f32([8, 2, 5, 2]), ids, Why::Source(1, "[8, columns, tokens, 1]")),
        by_id(experts, columns, i32([4, 6, 1, 1]), Why::Source(2, "[used, 5, 1, 1]")),
        by_id(experts, columns, i32([4, 5, 2, 1]), Why::Source(2, "[used, 5, 1, 1]")),
        by_id(experts, columns, i32([4, 5, 1, 2]), Why::Source(2, "[used, 5, 1, 1]")),
        by_id(experts, f32([8, 3, 5, 1]), ids, Why::Source(1, "columns that divide 4")),
        by_id(experts, f32([8, 0, 5, 1]), ids, Why::Source(1, "columns that divide 4")),
    ]
}

fn elements() -> Vec<Case> {
    let float = "a floating-point type";
    let scale = |in_place| Op::Scale { scale: 1.0, bias: 0.0, in_place };
    let glu = |a, b, why| case(Op::Glu { glu: Glu::Swiglu, swapped: false }, &[a, b], why);
    let argsort = Op::Argsort { order: SortOrder::Ascending };
    let mut cases = vec![
        case(scale(false), &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(scale(true), &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(Op::SumRows, &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(argsort, &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(argsort, &[sparse(X)], Why::Source(0, "contiguous rows")),
        case(argsort, &[f32([1 << 31, 0, 1, 1])], Why::Source(0, "rows that i32 can index")),
        case(Op::Clamp { min: 0.0, max: 1.0 }, &[i32([8, 1, 1, 1])], Why::Source(0, "f32")),
        glu(i32([8, 3, 4, 6]), None, Why::Source(0, float)),
        glu(sparse(X), None, Why::Source(0, "contiguous rows")),
        glu(X, sparse(X), Why::Source(1, "contiguous rows")),
        glu(X, f32([8, 3, 4, 5]), Why::Source(1, "f32 [8, 3, 4, 6]")),
        glu(X, f16([8, 3, 4, 6]), Why::Source(1, "f32 [8, 3, 4, 6]")),
        glu(f32([7, 3, 4, 6]), None, Why::Source(0, "an even row")),
        case(Op::Glu { glu: Glu::Geglu, swapped: true }, &[f32([7, 1, 1, 1])], Why::Source(0, "an even row")),
    ];
    for op in [Op::Add, Op::Sub, Op::Mul, Op::Div] {
        cases.extend([
            case(op, &[i32([8, 3, 4, 6]), X], Why::Source(0, float)),
            case(op, &[X, i64([8, 3, 4, 6])], Why::Source(1, float)),
            case(op, &[X, f32([8, 2, 4, 6])], Why::Source(1, "a shape that divides [8, 3, 4, 6]")),
            case(op, &[X, f32([8, 0, 1, 1])], Why::Source(1, "a shape that divides [8, 3, 4, 6]")),
            // The first source is never the smaller one.
            case(op, &[f32([8, 1, 1, 1]), X], Why::Source(1, "a shape that divides [8, 1, 1, 1]")),
        ]);
    }
    for op in [|eps| Op::Norm { eps }, |eps| Op::RmsNorm { eps }] {
        cases.extend([
            case(op(1e-5), &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
            case(op(1e-5), &[sparse(X)], Why::Source(0, "contiguous rows")),
            case(op(-1e-5), &[X], Parameter("eps", "-0.00001", "a number from 0")),
            case(op(f32::NAN), &[X], Parameter("eps", "NaN", "a number from 0")),
        ]);
    }
    cases
}

fn attention() -> Vec<Case> {
    let soft_max = |x, mask, sinks, why| case(Op::SoftMax { scale: 1.0, max_bias: 0.0 }, &[x, mask, sinks], why);
    let rope_of = |rope, a, pos, factors, why| case(Op::Rope(rope), &[a, pos, factors], why);
    let rope = |a, pos, factors, why| rope_of(ROPE, a, pos, factors, why);
    let dims = |n_dims, found| {
        rope_of(Rope { n_dims, ..ROPE }, X, i32([4, 1, 1, 1]), None, Parameter("n_dims", found, "even, 2 to 8"))
    };
    let (q, k, v) = (f32([8, 5, 4, 6]), f16([8, 7, 2, 3]), f16([10, 7, 2, 3]));
    let flash = |sources, why| case(Op::FlashAttn(ATTN), sources, why);
    let keys = "[8, n, a divisor of 4, a divisor of 6]";
    let mask = "[8, at least 3, a divisor of 4, a divisor of 6]";
    let positions = i32([4, 1, 1, 1]);
    let four = i32([16, 1, 1, 1]);
    let some = "at most 8 pairs, some of them in the first three";
    let sections = |mode, pos, why| rope_of(Rope { mode, ..ROPE }, X, pos, None, why);
    vec![
        soft_max(f16([8, 3, 4, 6]), None, None, Why::Source(0, "f32")),
        soft_max(sparse(X), None, None, Why::Source(0, "contiguous rows")),
        soft_max(X, of(BF16, [8, 3, 1, 1]), None, Why::Source(1, "f16 or f32")),
        soft_max(X, sparse(f32([8, 3, 1, 1])), None, Why::Source(1, "contiguous rows")),
        soft_max(X, f32([7, 3, 1, 1]), None, Why::Source(1, mask)),
        soft_max(X, f32([8, 2, 1, 1]), None, Why::Source(1, mask)),
        soft_max(X, f32([8, 3, 3, 1]), None, Why::Source(1, mask)),
        soft_max(X, f32([8, 3, 0, 1]), None, Why::Source(1, mask)),
        soft_max(X, f32([8, 3, 1, 4]), None, Why::Source(1, mask)),
        soft_max(X, f32([8, 3, 1, 0]), None, Why::Source(1, mask)),
        soft_max(X, None, f16([4, 1, 1, 1]), Why::Source(2, "f32")),
        soft_max(X, None, sparse(f32([4, 1, 1, 1])), Why::Source(2, "a contiguous tensor")),
        soft_max(X, None, f32([3, 1, 1, 1]), Why::Source(2, "[4, 1, 1, 1]")),
        soft_max(X, None, f32([4, 2, 1, 1]), Why::Source(2, "[4, 1, 1, 1]")),
        rope(i32([8, 3, 4, 6]), positions, None, Why::Source(0, "a floating-point type")),
        rope(sparse(X), positions, None, Why::Source(0, "contiguous rows")),
        rope(X, i64([4, 1, 1, 1]), None, Why::Source(1, "i32")),
        rope(X, i32([5, 1, 1, 1]), None, Why::Source(1, "[4, 1, 1, 1]")),
        rope(X, i32([4, 2, 1, 1]), None, Why::Source(1, "[4, 1, 1, 1]")),
        rope(X, sparse(positions), None, Why::Source(1, "a contiguous tensor")),
        dims(0, "0"),
        dims(3, "3"),
        dims(10, "10"),
        dims(u32::MAX - 1, "4294967294"),
        rope_of(Rope { first_dim: 6, ..ROPE }, X, positions, None, Parameter("first_dim", "6", "even, 0 to 4")),
        rope_of(Rope { first_dim: 3, ..ROPE }, X, positions, None, Parameter("first_dim", "3", "even, 0 to 4")),
        sections(RopeMode::Mrope { sections: [1, 1, 1, 0] }, positions, Why::Source(1, "[16, 1, 1, 1]")),
        sections(RopeMode::Imrope { sections: [0, 0, 0, 2] }, four, Parameter("sections", "[0, 0, 0, 2]", some)),
        sections(RopeMode::Mrope { sections: [3, 3, 3, 0] }, four, Parameter("sections", "[3, 3, 3, 0]", some)),
        rope_of(
            Rope { mode: RopeMode::Vision { sections: [1, 1, 0, 0] }, n_dims: 6, ..ROPE },
            X,
            four,
            None,
            Parameter("n_dims", "6", "half of 8"),
        ),
        rope_of(
            Rope { mode: RopeMode::Vision { sections: [1, 1, 0, 0] }, first_dim: 2, ..ROPE },
            X,
            four,
            None,
            Parameter("first_dim", "2", "0, since the whole row turns"),
        ),
        rope_of(
            Rope { mode: RopeMode::Vision { sections: [1, 1, 0, 0] }, ..ROPE },
            X,
            four,
            f32([3, 1, 1, 1]),
            Why::Source(2, "4 factors"),
        ),
        case(Op::RopeBack(ROPE), &[X, i32([5, 1, 1, 1])], Why::Source(1, "[4, 1, 1, 1]")),
        rope(X, positions, f16([2, 1, 1, 1]), Why::Source(2, "f32")),
        rope(X, positions, sparse(f32([2, 1, 1, 1])), Why::Source(2, "a contiguous tensor")),
        rope(X, positions, f32([1, 1, 1, 1]), Why::Source(2, "2 factors")),
        flash(&[f16([8, 5, 4, 6]), k, v], Why::Source(0, "f32")),
        flash(&[sparse(q), k, v], Why::Source(0, "contiguous rows")),
        flash(&[q, i32([8, 7, 2, 3]), v], Why::Source(1, READABLE)),
        flash(&[q, sparse(k), v], Why::Source(1, "contiguous rows")),
        flash(&[q, k, i32([10, 7, 2, 3])], Why::Source(2, READABLE)),
        flash(&[q, k, sparse(v)], Why::Source(2, "contiguous rows")),
        flash(&[q, f16([9, 7, 2, 3]), v], Why::Source(1, keys)),
        flash(&[q, f16([8, 7, 3, 3]), v], Why::Source(1, keys)),
        flash(&[q, f16([8, 7, 0, 3]), v], Why::Source(1, keys)),
        flash(&[q, f16([8, 7, 2, 4]), v], Why::Source(1, keys)),
        flash(&[q, f16([8, 7, 2, 0]), v], Why::Source(1, keys)),
        flash(&[q, k, f16([10, 6, 2, 3])], Why::Source(2, "[n, 7, 2, 3]")),
        flash(&[q, k, f16([10, 7, 4, 3])], Why::Source(2, "[n, 7, 2, 3]")),
        flash(&[q, k, f16([10, 7, 2, 6])], Why::Source(2, "[n, 7, 2, 3]")),
        flash(&[q, k, v, f32([7, 5, 1, 1])], Why::Source(3, "f16")),
        flash(&[q, k, v, sparse(f16([7, 5, 1, 1]))], Why::Source(3, "contiguous rows")),
        flash(&[q, k, v, f16([7, 4, 1, 1])], Why::Source(3, "[7, at least 5, a divisor of 4, a divisor of 6]")),
        flash(&[q, k, v, None, f32([2, 1, 1, 1])], Why::Source(4, "[4, 1, 1, 1]")),
    ]
}

fn states() -> Vec<Case> {
    let conv = |x, c, why| case(Op::SsmConv, &[x, c], why);
    let (x, c) = (f32([10, 5, 2, 1]), f32([4, 5, 1, 1]));
    let fitting = [
        f32([8, 2, 5, 7]),
        f32([8, 2, 5, 7]),
        f32([8, 6, 5, 7]),
        f32([1, 6, 5, 7]),
        f32([1, 6, 5, 7]),
        f32([8, 8, 6, 7]),
    ];
    let net = |slot: usize, source, why| {
        let mut sources = fitting;
        sources[slot] = source;
        case(Op::GatedDeltaNet { snapshots: 3 }, &sources, why)
    };
    let queries = "[8, a divisor of 6, 5, 7]";
    let mut cases = vec![
        conv(f16([10, 5, 2, 1]), c, Why::Source(0, "f32")),
        conv(x, f16([4, 5, 1, 1]), Why::Source(1, "f32")),
        conv(sparse(x), c, Why::Source(0, "contiguous rows")),
        conv(x, apart(c), Why::Source(1, "a contiguous tensor")),
        conv(x, f32([0, 5, 1, 1]), Why::Source(1, "[width, 5, 1, 1]")),
        conv(x, f32([4, 6, 1, 1]), Why::Source(1, "[width, 5, 1, 1]")),
        conv(x, f32([4, 5, 2, 1]), Why::Source(1, "[width, 5, 1, 1]")),
        conv(x, f32([4, 5, 1, 2]), Why::Source(1, "[width, 5, 1, 1]")),
        conv(f32([2, 5, 2, 1]), c, Why::Source(0, "[at least 3, channels, sequences, 1]")),
        conv(f32([10, 5, 2, 2]), c, Why::Source(0, "[at least 3, channels, sequences, 1]")),
        net(0, f32([4, 2, 5, 7]), Why::Source(0, queries)),
        net(0, f32([8, 4, 5, 7]), Why::Source(0, queries)),
        net(0, f32([8, 0, 5, 7]), Why::Source(0, queries)),
        net(0, f32([8, 2, 4, 7]), Why::Source(0, queries)),
        net(0, f32([8, 2, 5, 6]), Why::Source(0, queries)),
        net(1, f32([8, 3, 5, 7]), Why::Source(1, "[8, 2, 5, 7]")),
        net(3, f32([2, 6, 5, 7]), Why::Source(3, "[1 or 8, 6, 5, 7]")),
        net(3, f32([8, 6, 4, 7]), Why::Source(3, "[1 or 8, 6, 5, 7]")),
        net(4, f32([8, 6, 5, 7]), Why::Source(4, "[1, 6, 5, 7]")),
        net(5, f32([8, 8, 6, 6]), Why::Source(5, "[8, 8, 6, 7]")),
        net(5, f32([8, 4, 6, 7]), Why::Source(5, "[8, 8, 6, 7]")),
        case(Op::GatedDeltaNet { snapshots: 0 }, &fitting, Parameter("snapshots", "0", "at least 1")),
    ];
    for (slot, source) in fitting.into_iter().enumerate() {
        let half = source.map(|source| Source { dtype: F16, ..source });
        cases.push(net(slot, half, Why::Source(slot, "f32")));
        let expected = if slot < 3 { "contiguous rows" } else { "a contiguous tensor" };
        cases.push(net(slot, sparse(source), Why::Source(slot, expected)));
    }
    cases
}

#[test]
fn refusals_say_what_was_given_and_what_fits() {
    let mut covered = BTreeSet::from([OpKind::None]);
    let families = [views(), rows_and_copies(), products(), elements(), attention(), states(), reductions()];
    for case in families.into_iter().chain([pointwise(), filling()]).flatten() {
        covered.insert(case.0.kind());
        check(case);
    }
    // Every type has elements that can be exchanged and copied, so that nothing but their number can be wrong.
    covered.extend([OpKind::Transpose, OpKind::Dup]);
    assert!(covered.into_iter().eq(OpKind::ALL.iter().copied()), "every operation has a case");
}

#[test]
fn states_that_no_memory_can_hold_are_refused() {
    // Small sources, but more snapshots of them than there are addresses.
    let mut graph = Graph::new();
    let sources = [
        f32([1 << 16, 1, 1, 1]),
        f32([1 << 16, 1, 1, 1]),
        f32([1 << 16, 1, 1, 1]),
        f32([1, 1, 1, 1]),
        f32([1, 1, 1, 1]),
        f32([1 << 16, 1 << 16, 1, 1]),
    ];
    let ids = make(&mut graph, &sources);
    let error = graph.push(Op::GatedDeltaNet { snapshots: u32::MAX }, &ids).expect_err("too large");
    assert!(matches!(error, GraphError::Size { dtype: F32, ne: [0x1_0000, 0xffff_ffff_0001, 1, 1] }), "{error}");
}

#[test]
fn leaves_without_a_size_are_refused() {
    let mut graph = Graph::new();
    for (dtype, ne) in [
        (F32, [1 << 61, 1, 1, 1]),
        (F16, [1 << 62, 1, 1, 1]),
        (I64, [1 << 60, 1, 1, 1]),
        (BF16, [1 << 32, 1 << 32, 1, 1]),
        (I32, [1 << 16, 1 << 16, 1 << 16, 1 << 16]),
        (F32, [usize::MAX, usize::MAX, usize::MAX, usize::MAX]),
        // Where a zero hides it, too: strides are products of the others.
        (F32, [0, 1 << 40, 1 << 40, 1]),
        (F32, [1 << 40, 1 << 40, 0, 1]),
        (F32, [1 << 62, 0, 1, 1]),
        (F32, [1 << 61, 0, 1, 1]),
        (F32, [0, 1 << 61, 1, 1]),
        // Fewer bytes than elements.
        (DType::Block(BlockFormat::Q2K), [1 << 60, 1, 16, 0]),
    ] {
        let error = graph.leaf("x", LeafKind::Weight, dtype, ne).expect_err("no size");
        assert_eq!(error, GraphError::Size { dtype, ne });
    }
    assert!(graph.tensors().is_empty());
    for ne in [[0, 0, 0, 0], [1 << 60, 0, 1, 1], [0, 1 << 60, 1, 1], [1 << 59, 2, 1, 1]] {
        assert!(graph.leaf("x", LeafKind::Input, F32, ne).is_ok(), "{ne:?}");
    }
}
