{#- Element-wise functions. -#}
{% from "special" import reduced, exponentials, erfc %}
{% macro function(op) %}
{% if op == "abs" %}
fn act(x: f32) -> f32 { return abs(x); }
{% elif op == "sgn" %}
// Comparisons, so that NaN gives 0.
fn act(x: f32) -> f32 { return select(select(0.0, -1.0, x < 0.0), 1.0, x > 0.0); }
{% elif op == "neg" %}
fn act(x: f32) -> f32 { return -x; }
{% elif op == "step" %}
fn act(x: f32) -> f32 { return select(0.0, 1.0, x > 0.0); }
{% elif op == "relu" %}
fn act(x: f32) -> f32 { return select(0.0, x, x > 0.0); }
{% elif op == "leaky_relu" %}
// NaN is neither above nor below 0.
fn act(x: f32) -> f32 { return select(0.0, x, x > 0.0) + p.negative_slope * select(0.0, x, x < 0.0); }
{% elif op == "elu" %}
{{ exponentials() }}
fn act(x: f32) -> f32 { return select(exponential_less_one(min(x, 0.0)), x, x > 0.0); }
{% elif op == "xielu" %}
{{ exponentials() }}
fn act(x: f32) -> f32 {
    let below = (exponential_less_one(min(x, p.eps)) - x) * p.alpha_n;
    return select(below, p.alpha_p * x * x, x > 0.0) + p.beta * x;
}
{% elif op == "hard_sigmoid" %}
fn act(x: f32) -> f32 { return clamp((x + 3.0) / 6.0, 0.0, 1.0); }
{% elif op == "hard_swish" %}
fn act(x: f32) -> f32 { return x * clamp((x + 3.0) / 6.0, 0.0, 1.0); }
{% elif op == "exp" %}
{{ exponentials() }}
fn act(x: f32) -> f32 { return exponential(x); }
{% elif op == "expm1" %}
{{ exponentials() }}
fn act(x: f32) -> f32 { return exponential_less_one(x); }
{% elif op == "floor" or op == "ceil" or op == "trunc" or op == "sqrt" or op == "log" %}
fn act(x: f32) -> f32 { return {{ op }}(x); }
{% elif op == "round" %}
// WGSL's own rounds halves to even. What is cut off is exact, unlike the sum of a number and a half.
fn act(x: f32) -> f32 {
    let whole = trunc(x);
    return whole + select(0.0, sign(x), abs(x - whole) >= 0.5);
}
{% elif op == "sin" or op == "cos" %}
{{ reduced() }}
fn act(x: f32) -> f32 { return {{ op }}(reduced(x)); }
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
{% elif op == "gelu_quick" %}
// Below -52 the result is nothing, and must stay it for numbers that compare with e^88.
fn act(x: f32) -> f32 { return max(x, -52.0) / (1.0 + exp(min(-1.702 * x, 88.0))); }
{% elif op == "gelu_erf" %}
{{ erfc() }}
// x/2 · (1 + erf(x / √2)) without the cancellation for negative x.
fn act(x: f32) -> f32 { return 0.5 * max(x, -20.0) * erfc(-0.70710678 * x); }
{% elif op == "swish" %}
// As for silu, with a factor of either sign in the sigmoid.
fn act(x: f32) -> f32 {
    let u = -p.alpha * x;
    return select(x / (1.0 + exp(min(u, 88.0))), 0.0, u > 88.0);
}
{% elif op == "silu_back" %}
// Beyond ±88 the slope is 0 or 1.
fn act_back(grad: f32, x: f32) -> f32 {
    let y = clamp(x, -88.0, 88.0);
    let s = 1.0 / (1.0 + exp(-y));
    return grad * s * (1.0 + y * (1.0 - s));
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
