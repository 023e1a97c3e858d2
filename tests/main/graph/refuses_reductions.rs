//! What sums, sorts, norms, linear algebra and training operations refuse.

use super::refuses::Why::Parameter;
use super::refuses::{Case, Why, case};
use super::{Source, apart, f16, f32, i32, i64, sparse};
use wgfuse::graph::Op;

const X: Option<Source> = f32([8, 3, 4, 6]);

pub fn reductions() -> Vec<Case> {
    let float = "a floating-point type";
    let rows = "contiguous rows";
    let row = f32([8, 1, 1, 1]);
    let group = |groups, eps| Op::GroupNorm { groups, eps };
    let back = |ne, found| case(Op::RepeatBack { ne }, &[X], Parameter("ne", found, "divisors of [8, 3, 4, 6]"));
    let rows_back = Op::GetRowsBack { rows: 9 };
    let soft_max_back = Op::SoftMaxBack { scale: 1.0, max_bias: 0.0 };
    let entropy_back = Op::CrossEntropyLossBack;
    let one = f32([1; 4]);
    let mut cases = vec![
        case(Op::Sum, &[i32([8, 1, 1, 1])], Why::Source(0, float)),
        case(Op::Mean, &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(Op::Mean, &[f32([0, 2, 1, 1])], Why::Source(0, "rows that have elements")),
        case(Op::CumSum, &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(Op::CumSum, &[sparse(X)], Why::Source(0, rows)),
        case(Op::CountEqual, &[i64([8, 1, 1, 1]), i32([8, 1, 1, 1])], Why::Source(0, "i32")),
        case(Op::CountEqual, &[i32([8, 1, 1, 1]), row], Why::Source(1, "i32")),
        case(Op::CountEqual, &[i32([8, 1, 1, 1]), i32([4, 2, 1, 1])], Why::Source(1, "[8, 1, 1, 1]")),
        case(Op::Argmax, &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(Op::Argmax, &[sparse(f32([8, 3, 1, 1]))], Why::Source(0, rows)),
        case(Op::Argmax, &[f32([8, 3, 2, 1])], Why::Source(0, "two dimensions")),
        case(Op::Argmax, &[f32([8, 3, 1, 2])], Why::Source(0, "two dimensions")),
        case(Op::Argmax, &[f32([0, 3, 1, 1])], Why::Source(0, "rows that have elements")),
        case(Op::Argmax, &[f32([1 << 31, 0, 1, 1])], Why::Source(0, "rows that i32 can index")),
        case(Op::TopK { k: 1 }, &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(Op::TopK { k: 1 }, &[sparse(X)], Why::Source(0, rows)),
        case(Op::TopK { k: 1 }, &[f32([1 << 31, 0, 1, 1])], Why::Source(0, "rows that i32 can index")),
        case(Op::TopK { k: 9 }, &[X], Parameter("k", "9", "at most 8")),
        case(Op::L2Norm { eps: 0.0 }, &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(Op::L2Norm { eps: -1.0 }, &[X], Parameter("eps", "-1", "a number from 0")),
        case(group(2, 0.0), &[f16([8, 1, 4, 1])], Why::Source(0, "f32")),
        case(group(0, 0.0), &[X], Parameter("groups", "0", "at least 1")),
        case(group(2, f32::NAN), &[X], Parameter("eps", "NaN", "a number from 0")),
        back([8, 2, 4, 6], "[8, 2, 4, 6]"),
        back([0, 3, 4, 6], "[0, 3, 4, 6]"),
        back([16, 3, 4, 6], "[16, 3, 4, 6]"),
        case(Op::RepeatBack { ne: [8, 1, 1, 1] }, &[f16([8, 1, 1, 1])], Why::Source(0, "f32")),
        case(rows_back, &[i32([8, 3, 1, 1]), i32([3, 1, 1, 1])], Why::Source(0, float)),
        case(rows_back, &[sparse(f32([8, 3, 1, 1])), i32([3, 1, 1, 1])], Why::Source(0, rows)),
        case(rows_back, &[X, i32([3, 1, 1, 1])], Why::Source(0, "two dimensions")),
        case(rows_back, &[f32([8, 3, 1, 1]), i64([3, 1, 1, 1])], Why::Source(1, "i32")),
        case(rows_back, &[f32([8, 3, 1, 1]), i32([4, 1, 1, 1])], Why::Source(1, "[3, 1, 1, 1]")),
        case(Op::RmsNormBack { eps: -1.0 }, &[X, X], Parameter("eps", "-1", "a number from 0")),
        case(
            Op::CrossEntropyLoss,
            &[f32([0, 3, 1, 1]), f32([0, 3, 1, 1])],
            Why::Source(0, "a tensor that has elements"),
        ),
        case(entropy_back, &[row, X, X], Why::Source(0, "one element")),
        case(entropy_back, &[f16([1; 4]), X, X], Why::Source(0, "f32")),
        case(entropy_back, &[one, sparse(X), X], Why::Source(1, rows)),
        case(entropy_back, &[one, X, row], Why::Source(2, "[8, 3, 4, 6]")),
    ];
    for op in [Op::RmsNormBack { eps: 0.0 }, soft_max_back, Op::CrossEntropyLoss] {
        cases.extend([
            case(op, &[f16([8, 3, 4, 6]), X], Why::Source(0, "f32")),
            case(op, &[X, f16([8, 3, 4, 6])], Why::Source(1, "f32")),
            case(op, &[sparse(X), X], Why::Source(0, rows)),
            case(op, &[X, sparse(X)], Why::Source(1, rows)),
            case(op, &[X, row], Why::Source(1, "[8, 3, 4, 6]")),
        ]);
    }
    cases.extend(products());
    cases.extend(steps());
    cases
}

fn products() -> Vec<Case> {
    let fits = "[n, 3, a multiple of 4, a multiple of 6]";
    let out = |a, b, why| case(Op::OutProd, &[a, b], why);
    let solve = |a, b, why| case(Op::SolveTri, &[a, b], why);
    let (square, b) = (f32([3, 3, 4, 6]), f32([8, 3, 4, 6]));
    vec![
        out(i32([8, 3, 4, 6]), b, Why::Source(0, "a floating-point type, quantized or not")),
        out(sparse(X), b, Why::Source(0, "contiguous rows")),
        out(X, f16([8, 3, 4, 6]), Why::Source(1, "f32")),
        out(X, f32([8, 2, 4, 6]), Why::Source(1, fits)),
        out(X, f32([8, 3, 2, 6]), Why::Source(1, fits)),
        out(X, f32([8, 3, 4, 3]), Why::Source(1, fits)),
        out(f32([8, 3, 0, 6]), b, Why::Source(1, "[n, 3, a multiple of 0, a multiple of 6]")),
        solve(f16([3, 3, 4, 6]), b, Why::Source(0, "f32")),
        solve(square, f16([8, 3, 4, 6]), Why::Source(1, "f32")),
        solve(apart(square), b, Why::Source(0, "a contiguous tensor")),
        solve(square, apart(b), Why::Source(1, "a contiguous tensor")),
        solve(f32([2, 3, 4, 6]), b, Why::Source(0, "square matrices")),
        solve(square, f32([8, 2, 4, 6]), Why::Source(1, "[n, 3, 4, 6]")),
        solve(square, f32([8, 3, 4, 3]), Why::Source(1, "[n, 3, 4, 6]")),
    ]
}

/// Optimizers: every tensor but the parameters is f32 and of the shape of the weights.
fn steps() -> Vec<Case> {
    let adamw = [X, X, X, X, f32([7, 1, 1, 1])];
    let sgd = [X, X, f32([2, 1, 1, 1])];
    let mut cases = Vec::new();
    for (op, fitting) in [(Op::OptStepAdamW, &adamw[..]), (Op::OptStepSgd, &sgd[..])] {
        let last = fitting.len() - 1;
        let with = |slot: usize, source| {
            let mut sources = fitting.to_vec();
            sources[slot] = source;
            sources
        };
        for slot in 0..last {
            cases.push(case(op, &with(slot, f16([8, 3, 4, 6])), Why::Source(slot, "f32")));
            if slot > 0 {
                cases.push(case(op, &with(slot, f32([8, 3, 4, 5])), Why::Source(slot, "[8, 3, 4, 6]")));
            }
        }
        let count = if last == 4 { "7 elements" } else { "2 elements" };
        cases.push(case(op, &with(last, f32([6, 1, 1, 1])), Why::Source(last, count)));
        cases.push(case(op, &with(last, i32([7, 1, 1, 1])), Why::Source(last, "f32")));
        cases.push(case(op, &with(last, sparse(f32([7, 1, 1, 1]))), Why::Source(last, "a contiguous tensor")));
    }
    cases
}
