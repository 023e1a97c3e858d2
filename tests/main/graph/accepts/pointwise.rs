//! Element-wise functions, gated units and sums with picked rows.

use super::super::{apart, f16, f32, i32, of, sparse};
use super::{BF16, Case, F16, F32, fresh};
use wgfuse::graph::{Glu, Op, Unary, Xielu};

const XIELU: Xielu = Xielu { alpha_n: 2.0, alpha_p: 3.0, beta: 0.5, eps: -1.0 };
const OAI: Glu = Glu::SwigluOai { alpha: 2.0, limit: 7.0 };
const CLAMPED: Glu = Glu::SwigluClamp { limit: f32::INFINITY };

pub fn cases() -> Vec<Case> {
    let x = f32([8, 3, 4, 6]);
    let glu = |glu, swapped| Op::Glu { glu, swapped };
    let mut cases = vec![
        fresh(glu(Glu::Swiglu, true), 1, &[apart(f16([8, 3, 4, 6])), None], F16, [4, 3, 4, 6]),
        fresh(glu(Glu::Swiglu, false), 1, &[apart(x), x], F32, [8, 3, 4, 6]),
        fresh(Op::SiluBack, 2, &[sparse(f16([8, 3, 4, 6])), f16([8, 3, 4, 6])], F16, [8, 3, 4, 6]),
        fresh(
            Op::AddId,
            3,
            &[apart(f32([8, 3, 4, 2])), apart(f32([8, 9, 1, 1])), sparse(i32([3, 4, 1, 1]))],
            F32,
            [8, 3, 4, 2],
        ),
    ];
    for unit in [Glu::Reglu, Glu::Geglu, OAI, Glu::GegluErf, Glu::GegluQuick, CLAMPED] {
        cases.push(fresh(glu(unit, false), 1, &[x], F32, [4, 3, 4, 6]));
    }
    let leaky_relu = Op::LeakyRelu { negative_slope: 0.25 };
    let others = [Op::Sqr, Op::Sqrt, Op::Sin, Op::Cos, Op::Log, leaky_relu, Op::Xielu(XIELU)];
    for op in others.into_iter().chain(Unary::ALL.map(Op::Unary)) {
        cases.push(fresh(op, 1, &[sparse(of(BF16, [8, 3, 4, 6]))], BF16, [8, 3, 4, 6]));
    }
    cases
}

pub fn words() -> Vec<(Op, Vec<u32>)> {
    let bits = f32::to_bits;
    let glu = |glu| Op::Glu { glu, swapped: true };
    let mut words = vec![
        (Op::LeakyRelu { negative_slope: 0.25 }, vec![bits(0.25)]),
        (Op::Xielu(XIELU), vec![17, bits(2.0), bits(3.0), bits(0.5), bits(-1.0)]),
        (Op::Glu { glu: Glu::Swiglu, swapped: false }, vec![2]),
        (glu(Glu::Reglu), vec![0, 1]),
        (glu(Glu::Geglu), vec![1, 1]),
        (glu(Glu::Swiglu), vec![2, 1]),
        (glu(OAI), vec![3, 1, bits(2.0), bits(7.0)]),
        (glu(Glu::GegluErf), vec![4, 1]),
        (glu(Glu::GegluQuick), vec![5, 1]),
        (glu(CLAMPED), vec![6, 1, 0, bits(f32::INFINITY)]),
    ];
    let numbers = "ABS 0 SGN 1 NEG 2 STEP 3 TANH 4 ELU 5 RELU 6 SIGMOID 7 GELU 8 GELU_QUICK 9 SILU 10 HARDSWISH 11 \
        HARDSIGMOID 12 EXP 13 EXPM1 14 SOFTPLUS 15 GELU_ERF 16 FLOOR 18 CEIL 19 ROUND 20 TRUNC 21";
    let numbers: Vec<&str> = numbers.split(' ').collect();
    for (unary, number) in Unary::ALL.iter().zip(numbers.chunks(2)) {
        assert_eq!(unary.kind().label(), number[0]);
        words.push((Op::Unary(*unary), vec![number[1].parse().expect("a number")]));
    }
    words
}

#[test]
fn weights_of_xielu_go_through_softplus() {
    let xielu = Xielu::of_weights(0.0, 30.0, 0.5, -1e-6);
    assert!((xielu.alpha_n - 0.5 - 2f32.ln()).abs() < 1e-6, "{xielu:?}");
    assert_eq!((xielu.alpha_p, xielu.beta, xielu.eps), (30.0, 0.5, -1e-6));
}
