{#- Functions that WGSL lacks, or that drivers compute inexactly. -#}

{#- `reduced(x)`: an angle less whole turns. Drivers are inexact, or worse, for large ones. 2π is in three parts, the
    first two with so few bits that their products with the number of turns are exact. -#}
{% macro reduced() %}
fn reduced(x: f32) -> f32 {
    let turns = round(x * 0.15915494);
    return ((x - turns * 6.28125) - turns * 0.0019340515) - turns * 1.2556659e-6;
}
{% endmacro %}

{#- `exponential(x)` and `exponential_less_one(x)`, both within a few roundings: e^x is 2^k · e^r with a whole number k,
    and e^r - 1 is a short series, since r is at most half of ln 2 (Cody and Waite 1980). ln 2 is in two parts, the first
    with so few bits that its product with k is exact. -#}
{% macro exponentials() %}
// e^r - 1.
fn series(r: f32) -> f32 {
    let tail = 0.041666668 + r * (0.008333334 + r * (0.0013888889 + r * 0.0001984127));
    return r + r * r * (0.5 + r * (0.16666667 + r * tail));
}

fn power_of_two(k: f32) -> f32 {
    return bitcast<f32>(u32(i32(k) + 127) << 23u);
}

struct Parts {
    rest: f32,
    // Two powers of two: their product may be past the range of one.
    first: f32,
    second: f32,
}

fn parts(x: f32) -> Parts {
    // Beyond, all is 0 or infinity.
    let y = clamp(x, -104.0, 89.0);
    let k = round(y * 1.442695);
    let half = floor(0.5 * k);
    return Parts((y - k * 0.693359375) + k * 0.0002121944, power_of_two(half), power_of_two(k - half));
}

fn exponential(x: f32) -> f32 {
    let e = parts(x);
    return ((1.0 + series(e.rest)) * e.first) * e.second;
}

fn exponential_less_one(x: f32) -> f32 {
    let e = parts(min(x, 40.0));
    let power = e.first * e.second;
    return select(series(e.rest) * power + (power - 1.0), exponential(x), x > 40.0);
}
{% endmacro %}

{#- `erfc(x)`: 1 - erf x. (1 + 2x) · e^(x²) · erfc x is a smooth function of t = (x - 3.75) / (x + 3.75): Shepherd and
    Laframboise 1981, Mathematics of Computation 36. These are the first twelve terms of its Chebyshev series, written as
    powers; with exact arithmetic they are within 4e-8. -#}
{% macro erfc() %}
fn erfc(x: f32) -> f32 {
    // Beyond, it is nothing.
    let size = min(abs(x), 12.0);
    let t = (size - 3.75) / (size + 3.75);
    var series = 0.0003963076 + t * -0.00022411675;
    series = -0.009844495 + t * (0.0016759122 + t * series);
    series = -0.058646858 + t * (0.028409252 + t * series);
    series = -0.10881427 + t * (0.09229077 + t * series);
    series = 0.0035862704 + t * (0.08227842 + t * series);
    series = 1.2375126 + t * (-0.14024065 + t * series);
    let above = series * exp(max(-size * size, -87.0)) / (1.0 + 2.0 * size);
    return select(above, 2.0 - above, x < 0.0);
}
{% endmacro %}
