//! The snake activation.

use super::{fires, refuses};
use crate::devices::gpus;
use crate::numbers::pairs;
use crate::rig::{FLOATS, Rig, called};
use wgfuse::fusion::Decline;
use wgfuse::graph::{DType, LeafKind, Op, TensorId};

/// The parts of a snake, each to be varied alone.
struct Snake {
    x: (DType, [usize; 4]),
    factor: (DType, [usize; 4]),
    second_factor: (DType, [usize; 4]),
    swapped: [bool; 3],
    other_x: bool,
    strided: bool,
}

impl Default for Snake {
    fn default() -> Self {
        let factor = (DType::F32, [1, 8, 1, 1]);
        Self {
            x: (DType::F32, [16, 8, 1, 1]),
            factor,
            second_factor: factor,
            swapped: [false; 3],
            other_x: false,
            strided: false,
        }
    }
}

impl Snake {
    fn rig(&self) -> Rig {
        let mut b = Rig::default();
        let pair = |swap: bool, a: TensorId, b: TensorId| if swap { [b, a] } else { [a, b] };
        let mut x = b.leaf(LeafKind::Input, self.x.0, self.x.1);
        if self.strided {
            let wide = b.leaf(LeafKind::Input, self.x.0, [2 * self.x.1[0], self.x.1[1], 1, 1]);
            let nb = b.graph.tensor(wide).nb();
            x = b.op(Op::View { ne: self.x.1, nb, offset: 0 }, &[wide]);
        }
        let a = b.leaf(LeafKind::Weight, self.factor.0, self.factor.1);
        let inv_b = b.leaf(LeafKind::Weight, self.second_factor.0, self.second_factor.1);
        let added = if self.other_x { b.leaf(LeafKind::Input, self.x.0, self.x.1) } else { x };
        let scaled = b.op(Op::Mul, &pair(self.swapped[0], x, a));
        let sine = b.op(Op::Sin, &[scaled]);
        let squared = b.op(Op::Sqr, &[sine]);
        let weighted = b.op(Op::Mul, &pair(self.swapped[1], squared, inv_b));
        let sum = b.op(Op::Add, &pair(self.swapped[2], added, weighted));
        b.finish(&[sum])
    }
}

const SNAKE: &str = "MUL+SIN+SQR+MUL+ADD";

pub fn near_miss(check: &str) -> Option<Rig> {
    let flat = (DType::F32, [1, 1, 1, 1]);
    let snake = match check {
        "same_x" => Snake { other_x: true, ..Snake::default() },
        "types" => Snake { factor: (DType::F16, [1, 8, 1, 1]), ..Snake::default() },
        "two_dimensional" => Snake { x: (DType::F32, [16, 8, 2, 1]), ..Snake::default() },
        "factors" => Snake { second_factor: flat, ..Snake::default() },
        "contiguous" => Snake { strided: true, ..Snake::default() },
        _ => return None,
    };
    Some(snake.rig())
}

/// The table refuses factors of x's type, yet the kernel could take them, and before their partners, too.
#[test]
fn the_kernel_takes_factors_of_any_type_in_any_order() {
    for dtype in FLOATS {
        let factor = (dtype, [1, 9, 1, 1]);
        let snake = Snake { x: factor, factor, second_factor: factor, swapped: [true; 3], ..Snake::default() };
        let rig = snake.rig();
        let expected = rig.expected();
        for device in gpus() {
            let found = rig.run_merged(&device, rig.graph.nodes()).unwrap();
            rig.compare(&called(&device), &found, &expected);
        }
    }
}

#[test]
fn snakes_fire() {
    for (dtype, [length, channels]) in pairs(FLOATS, [[16, 8], [33, 5], [30, 4], [1, 5]]) {
        let (x, factor) = ((dtype, [length, channels, 1, 1]), (DType::F32, [1, channels, 1, 1]));
        for swapped in [[false; 3], [false, false, true]] {
            fires(SNAKE, &Snake { x, factor, second_factor: factor, swapped, ..Snake::default() }.rig());
        }
    }
    // A product takes the shape and type of its first source, so that factors can lead only where both agree.
    let column = (DType::F32, [1, 8, 1, 1]);
    for bits in 0..8 {
        let swapped = [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
        fires(SNAKE, &Snake { x: column, swapped, ..Snake::default() }.rig());
    }
}

#[test]
fn a_snake_is_two_dimensional() {
    for ne in [[64, 32, 2, 1], [64, 32, 1, 2], [64, 32, 2, 3]] {
        let factor = (DType::F32, [1, 32, 1, 1]);
        let snake = Snake { x: (DType::F32, ne), factor, second_factor: factor, ..Snake::default() };
        refuses(SNAKE, &snake.rig(), Decline::Check("two_dimensional"));
    }
}

#[test]
fn a_snake_has_one_type_and_f32_factors() {
    let types = Decline::Check("types");
    let half = (DType::F16, [1, 8, 1, 1]);
    refuses(SNAKE, &Snake { factor: half, ..Snake::default() }.rig(), types);
    refuses(SNAKE, &Snake { second_factor: half, ..Snake::default() }.rig(), types);
    // The factor leads, so that what follows has its type.
    let leading = Snake { x: half, swapped: [true, false, false], ..Snake::default() };
    refuses(SNAKE, &leading.rig(), types);
}

#[test]
fn snake_factors_are_columns() {
    let factors = Decline::Check("factors");
    for ne in [[16, 8, 1, 1], [1, 1, 1, 1], [1, 4, 1, 1], [16, 1, 1, 1]] {
        let other = (DType::F32, ne);
        refuses(SNAKE, &Snake { factor: other, ..Snake::default() }.rig(), factors);
        refuses(SNAKE, &Snake { second_factor: other, ..Snake::default() }.rig(), factors);
    }
}
