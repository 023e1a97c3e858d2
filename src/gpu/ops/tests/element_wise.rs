//! Arithmetic, functions of single elements, gated units, and filling operations.

use super::{FLOATS, check, f32, input, scattered};
use crate::graph::{DType, Glu, Graph, Op, Triangle, Unary, Window, Xielu};

const XIELU: Xielu = Xielu { alpha_n: 0.8, alpha_p: 0.7, beta: 0.5, eps: -1e-6 };

const GLUS: [Glu; 7] = [
    Glu::Reglu,
    Glu::Geglu,
    Glu::Swiglu,
    Glu::SwigluOai { alpha: 1.7, limit: 7.0 },
    Glu::GegluErf,
    Glu::GegluQuick,
    Glu::SwigluClamp { limit: 7.0 },
];

#[test]
fn fillings() {
    let window = Window { nb: [16, 48, 144], offset: 4 };
    for dtype in [DType::F32, DType::I32] {
        let mut g = Graph::new();
        let (whole, part) =
            (input(&mut g, dtype, [12, 12, 2, 1]).unwrap(), scattered(&mut g, dtype, [3, 2, 2, 2]).unwrap());
        let nodes = [g.set(whole, part, window).unwrap(), g.set_in_place(whole, part, window).unwrap()];
        let repeated = g.repeat(part, [6, 2, 4, 2]).unwrap();
        nodes.into_iter().chain([repeated]).for_each(|node| check(&mut g, &[node]));
    }
    let mut g = Graph::new();
    let x = f32(&mut g, [12, 12, 2, 1]).unwrap();
    let part = scattered(&mut g, DType::F32, [3, 2, 2, 2]).unwrap();
    let rows = f32(&mut g, [12, 1, 2, 1]).unwrap();
    let times = f32(&mut g, [5, 1, 1, 1]).unwrap();
    let square = scattered(&mut g, DType::F32, [12, 12, 2, 1]).unwrap();
    let (many, ids) = (f32(&mut g, [12, 4, 1, 1]).unwrap(), input(&mut g, DType::I32, [12, 2, 1, 1]).unwrap());
    let mut nodes = vec![
        g.acc(x, part, window).unwrap(),
        g.acc_in_place(x, part, window).unwrap(),
        g.fill_in_place(square, 1.0).unwrap(),
        g.arange(0.0, 9.0, 0.5).unwrap(),
        g.timestep_embedding(times, 7, 1000).unwrap(),
        g.diag(rows).unwrap(),
        g.diag_mask_inf(square, 3).unwrap(),
        g.diag_mask_zero_in_place(square, 3).unwrap(),
        g.dup(square).unwrap(),
        g.add_id(x, many, ids).unwrap(),
    ];
    nodes.extend(Triangle::ALL.map(|part| g.tri(square, part).unwrap()));
    nodes.into_iter().for_each(|node| check(&mut g, &[node]));
}

#[test]
fn element_wise() {
    for dtype in FLOATS {
        for other in [[6, 4, 3, 2], [6, 1, 3, 1], [3, 2, 1, 1], [1, 1, 1, 1]] {
            for dense in [true, false] {
                let mut g = Graph::new();
                let make = |g: &mut Graph, ne| if dense { input(g, dtype, ne) } else { scattered(g, dtype, ne) };
                let (x, y) = (make(&mut g, [6, 4, 3, 2]).unwrap(), make(&mut g, other).unwrap());
                for op in [Op::Add, Op::Sub, Op::Mul, Op::Div] {
                    let node = g.push(op, &[Some(x), Some(y)]).unwrap();
                    check(&mut g, &[node]);
                }
                let leaky = Op::LeakyRelu { negative_slope: 0.1 };
                let others = [Op::Sqr, Op::Sqrt, Op::Sin, Op::Cos, Op::Log, leaky, Op::Xielu(XIELU)];
                for op in others.into_iter().chain(Unary::ALL.map(Op::Unary)) {
                    let node = g.push(op, &[Some(x)]).unwrap();
                    check(&mut g, &[node]);
                }
                let fill = g.fill(x, 0.5).unwrap();
                let back = g.silu_back(x, x).unwrap();
                [fill, back].into_iter().for_each(|node| check(&mut g, &[node]));
            }
        }
        for glu in GLUS {
            for swapped in [false, true] {
                let mut g = Graph::new();
                let x = input(&mut g, dtype, [6, 4, 3, 2]).unwrap();
                let halves = g.glu_halves(x, glu, swapped).unwrap();
                let whole = g.push(Op::Glu { glu, swapped }, &[Some(x), Some(x)]).unwrap();
                [halves, whole].into_iter().for_each(|node| check(&mut g, &[node]));
            }
        }
    }
    for in_place in [false, true] {
        let mut g = Graph::new();
        let x = scattered(&mut g, DType::F32, [6, 4, 3, 2]).unwrap();
        let scaled = g.push(Op::Scale { scale: 2.0, bias: 1.0, in_place }, &[Some(x)]).unwrap();
        let held = g.clamp(x, -1.0, 1.0).unwrap();
        let sums = g.sum_rows(x).unwrap();
        [scaled, held, sums].into_iter().for_each(|node| check(&mut g, &[node]));
    }
}
