{#- Element-wise functions. -#}
{% macro function(op) %}
{% if op == "sin" %}
// Reduced to one turn first: drivers are inexact, or worse, for large arguments. Three parts of 2π, the first two with
// so few bits that their products with the number of turns are exact.
fn act(x: f32) -> f32 {
    let turns = round(x * 0.15915494);
    return sin(((x - turns * 6.28125) - turns * 0.0019340515) - turns * 1.2556659e-6);
}
{% elif op == "tanh" %}
// Some drivers give NaN for large arguments.
fn act(x: f32) -> f32 { return tanh(clamp(x, -15.0, 15.0)); }
{% elif op == "sigmoid" %}
fn act(x: f32) -> f32 { return 1.0 / (1.0 + exp(min(-x, 88.0))); }
{% elif op == "silu" %}
// Below -88 the result is nothing, and must stay it for numbers that compare with e^88.
fn act(x: f32) -> f32 { return max(x, -88.0) / (1.0 + exp(min(-x, 88.0))); }
{% elif op == "gelu" %}
// x · (1 + tanh u) / 2 = x / (1 + e^-2u), which does not cancel for negative x. Beyond ±10 it is 0 or x.
fn act(x: f32) -> f32 {
    let y = clamp(x, -10.0, 10.0);
    let u = 0.79788456 * y * (1.0 + 0.044715 * y * y);
    return max(x, -10.0) / (1.0 + exp(-2.0 * u));
}
{% elif op == "softplus" %}
// Where e^x is small, 1 + e^x has lost most of its digits: the series of ln(1 + e) keeps them.
fn act(x: f32) -> f32 {
    let e = exp(min(x, 20.0));
    let small = e * (1.0 - e * (0.5 - e * (0.33333333 - 0.25 * e)));
    return select(select(log(1.0 + e), small, x < -4.0), x, x > 20.0);
}
{% elif op == "sqr" %}
fn act(x: f32) -> f32 { return x * x; }
{% elif op == "scale" %}
fn act(x: f32) -> f32 { return x * p.scale + p.bias; }
{% elif op == "clamp" %}
fn act(x: f32) -> f32 { return max(min(x, p.max), p.min); }
{% endif %}
{% endmacro %}
