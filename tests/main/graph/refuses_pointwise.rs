//! What element-wise functions, gated units and filling operations refuse.

use super::refuses::Why::{Bounds, Parameter, Size};
use super::refuses::{Case, Why, case};
use super::{Source, f16, f32, i32, i64, of, sparse};
use wgfuse::graph::DType::{BF16, F32};
use wgfuse::graph::{Glu, Graph, LeafKind, Op, Triangle, Unary, Window, Xielu};

const X: Option<Source> = f32([8, 3, 4, 6]);
const FLOAT: &str = "a floating-point type";

pub fn pointwise() -> Vec<Case> {
    let glu = |glu, why| case(Op::Glu { glu, swapped: false }, &[X], why);
    let oai = |alpha, limit| Glu::SwigluOai { alpha, limit };
    let add = |a, b, ids, why| case(Op::AddId, &[a, b, ids], why);
    let (rows, ids) = (f32([8, 9, 1, 1]), i32([3, 4, 1, 1]));
    let mut cases = vec![
        glu(oai(f32::NAN, 7.0), Parameter("alpha", "NaN", "a finite number")),
        glu(oai(f32::INFINITY, 7.0), Parameter("alpha", "inf", "a finite number")),
        glu(oai(1.0, -0.5), Parameter("limit", "-0.5", "a number from 0")),
        glu(oai(1.0, f32::NAN), Parameter("limit", "NaN", "a number from 0")),
        glu(Glu::SwigluClamp { limit: -0.5 }, Parameter("limit", "-0.5", "a number from 0")),
        glu(Glu::SwigluClamp { limit: f32::NAN }, Parameter("limit", "NaN", "a number from 0")),
        case(Op::SiluBack, &[i32([8, 3, 4, 6]), X], Why::Source(0, FLOAT)),
        case(Op::SiluBack, &[X, f16([8, 3, 4, 6])], Why::Source(1, "f32 [8, 3, 4, 6]")),
        case(Op::SiluBack, &[X, f32([8, 3, 4, 1])], Why::Source(1, "f32 [8, 3, 4, 6]")),
        add(f16([8, 3, 4, 6]), rows, ids, Why::Source(0, "f32")),
        add(X, f16([8, 9, 1, 1]), ids, Why::Source(1, "f32")),
        add(X, rows, i64([3, 4, 1, 1]), Why::Source(2, "i32")),
        add(sparse(X), rows, ids, Why::Source(0, "contiguous rows")),
        add(X, sparse(rows), ids, Why::Source(1, "contiguous rows")),
        add(X, f32([4, 9, 1, 1]), ids, Why::Source(1, "[8, n, 1, 1]")),
        add(X, f32([8, 9, 2, 1]), ids, Why::Source(1, "[8, n, 1, 1]")),
        add(X, f32([8, 9, 1, 2]), ids, Why::Source(1, "[8, n, 1, 1]")),
        add(X, rows, i32([2, 4, 1, 1]), Why::Source(2, "[3, 4, 1, 1]")),
        add(X, rows, i32([3, 5, 1, 1]), Why::Source(2, "[3, 4, 1, 1]")),
        add(X, rows, i32([3, 4, 2, 1]), Why::Source(2, "[3, 4, 1, 1]")),
    ];
    for unit in [Glu::Reglu, oai(1.0, 1.0), Glu::GegluErf, Glu::GegluQuick, Glu::SwigluClamp { limit: 1.0 }] {
        let op = Op::Glu { glu: unit, swapped: false };
        cases.push(case(op, &[i32([8, 3, 4, 6])], Why::Source(0, FLOAT)));
        cases.push(case(op, &[f32([7, 3, 4, 6])], Why::Source(0, "an even row")));
    }
    let xielu = Op::Xielu(Xielu::of_weights(0.5, 0.5, 0.5, -1e-6));
    let others = [Op::Sqr, Op::Sqrt, Op::Sin, Op::Cos, Op::Log, Op::LeakyRelu { negative_slope: 0.1 }, xielu];
    let functions = others.into_iter().chain(Unary::ALL.map(Op::Unary));
    cases.extend(functions.map(|op| case(op, &[i32([8, 1, 1, 1])], Why::Source(0, FLOAT))));
    cases
}

pub fn filling() -> Vec<Case> {
    let arange = |start, stop, step, why| case(Op::Arange { start, stop, step }, &[], why);
    let embedding = |dim, max_period, source, why| case(Op::TimestepEmbedding { dim, max_period }, &[source], why);
    let tri = Op::Tri { part: Triangle::Upper };
    let times = f32([5, 1, 1, 1]);
    let huge = f32([1 << 31, 1, 1, 1]);
    let fill = |in_place| Op::Fill { value: 0.0, in_place };
    let mut cases = vec![
        case(Op::Repeat { ne: [8, 3, 4, 6] }, &[i64([8, 3, 1, 1])], Why::Source(0, "a floating-point type or i32")),
        case(fill(false), &[i32([8, 1, 1, 1])], Why::Source(0, FLOAT)),
        arange(f32::NAN, 1.0, 1.0, Parameter("start", "NaN", "a finite number")),
        arange(f32::NEG_INFINITY, 1.0, 1.0, Parameter("start", "-inf", "a finite number")),
        arange(1.0, 1.0, 1.0, Parameter("stop", "1", "a finite number above 1")),
        arange(1.0, f32::NAN, 1.0, Parameter("stop", "NaN", "a finite number above 1")),
        arange(1.0, f32::INFINITY, 1.0, Parameter("stop", "inf", "a finite number above 1")),
        arange(1.0, 2.0, 0.0, Parameter("step", "0", "a finite number above 0")),
        arange(1.0, 2.0, -1.0, Parameter("step", "-1", "a finite number above 0")),
        arange(1.0, 2.0, f32::NAN, Parameter("step", "NaN", "a finite number above 0")),
        arange(1.0, 2.0, f32::INFINITY, Parameter("step", "inf", "a finite number above 0")),
        arange(0.0, 4e9, 1.0, Parameter("step", "1", "at most 2147483647 steps")),
        embedding(4, 10, f16([5, 1, 1, 1]), Why::Source(0, "f32")),
        embedding(4, 10, f32([5, 2, 1, 1]), Why::Source(0, "one dimension")),
        embedding(1 << 31, 10, times, Parameter("dim", "2147483648", "at most 2147483647")),
        embedding(4, 0, times, Parameter("max_period", "0", "1 to 2147483647")),
        embedding(4, 1 << 31, times, Parameter("max_period", "2147483648", "1 to 2147483647")),
        case(tri, &[f16([3, 3, 1, 1])], Why::Source(0, "f32")),
        case(tri, &[f32([3, 4, 1, 1])], Why::Source(0, "square matrices")),
        case(Op::Diag, &[of(BF16, [8, 1, 1, 1])], Why::Source(0, "f32")),
        case(Op::Diag, &[f32([8, 2, 4, 6])], Why::Source(0, "[8, 1, 4, 6]")),
        case(Op::Diag, &[huge], Size(F32, [1 << 31, 1 << 31, 1, 1])),
    ];
    for op in [
        |n_past, in_place| Op::DiagMaskInf { n_past, in_place },
        |n_past, in_place| Op::DiagMaskZero { n_past, in_place },
    ] {
        cases.push(case(op(0, false), &[f16([8, 1, 1, 1])], Why::Source(0, "f32")));
        cases.push(case(op(1 << 31, true), &[X], Parameter("n_past", "2147483648", "at most 2147483647")));
    }
    cases.extend(windows());
    cases
}

fn windows() -> Vec<Case> {
    let mut cases = Vec::new();
    let bytes = "multiples of 4 bytes, at most 2147483647";
    let b = f32([7, 2, 3, 5]);
    for op in [
        |nb, offset| Op::Acc { window: Window { nb, offset }, in_place: false },
        |nb, offset| Op::Set { window: Window { nb, offset }, in_place: true },
    ] {
        let near = |nb, offset, why| case(op(nb, offset), &[X, b], why);
        cases.extend([
            near([34, 96, 384], 0, Parameter("nb", "[34, 96, 384]", bytes)),
            near([1 << 31, 96, 384], 0, Parameter("nb", "[2147483648, 96, 384]", bytes)),
            near([32, 96, 384], 2, Parameter("offset", "2", bytes)),
            near([32, 96, 384], 1 << 31, Parameter("offset", "2147483648", bytes)),
            // The last element of the window is at 6, 1, 2, 4 from its start.
            near([32, 96, 384], 520, Bounds(520 + 24 + 32 + 192 + 1536 + 4, 2304)),
            near([32, 96, 384], 2304, Bounds(2304 + 24 + 32 + 192 + 1536 + 4, 2304)),
            near([24, 96, 384], 0, Parameter("nb", "[24, 96, 384]", "a window whose elements do not overlap")),
            near([0, 96, 384], 0, Parameter("nb", "[0, 96, 384]", "a window whose elements do not overlap")),
            case(op([32, 96, 384], 0), &[sparse(X), b], Why::Source(0, "a contiguous tensor")),
            case(op([32, 96, 384], 0), &[X, i32([7, 2, 3, 5])], Why::Source(1, "f32")),
        ]);
    }
    let window = Window { nb: [32, 96, 384], offset: 0 };
    let half = f16([8, 3, 4, 6]);
    cases.push(case(Op::Acc { window, in_place: false }, &[i32([8, 3, 4, 6]), b], Why::Source(0, "f32")));
    cases.push(case(Op::Set { window, in_place: false }, &[half, b], Why::Source(0, "f32 or i32")));
    cases
}

#[test]
fn nothing_is_overwritten_whose_elements_overlap_or_that_is_constant() {
    let ops = [
        Op::Fill { value: 1.0, in_place: true },
        Op::DiagMaskInf { n_past: 0, in_place: true },
        Op::DiagMaskZero { n_past: 0, in_place: true },
    ];
    let mut graph = Graph::new();
    let [input, weight] = [LeafKind::Input, LeafKind::Weight].map(|kind| graph.leaf("w", kind, F32, [8, 8, 1, 1]));
    let (input, weight) = (input.expect("a leaf"), weight.expect("a leaf"));
    let rows = graph.view(input, [8, 4, 1, 1], [4, 16, 64, 64], 0).expect("a view");
    for op in ops {
        let refused = |graph: &mut Graph, id| graph.push(op, &[Some(id)]).expect_err("a refusal").to_string();
        let overlap = refused(&mut graph, rows);
        assert!(overlap.ends_with("expected a tensor whose elements do not overlap"), "{overlap}");
        let constant = refused(&mut graph, weight);
        assert!(constant.contains("it would write the weight `w`"), "{constant}");
        assert!(graph.push(op, &[Some(input)]).is_ok());
    }
}
