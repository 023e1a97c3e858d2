{#- RMS_NORM_BACK, SOFT_MAX_BACK and CROSS_ENTROPY_LOSS_BACK. One workgroup per row.

    Switch: op. `grad` is the gradient of the result, `x` what the operation read (soft_max: its result). -#}
{% import "reduce" as reduce %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", "f32", wg, subgroups) }}
{%- if op == "cross_entropy" %}
{{- reduce.largest("group_max", "f32", wg, subgroups) }}
// Below every logit that counts; WGSL has no infinity to write down.
const LOWEST = -3.0e38;

// e^(value - top), and 0 for a logit of -infinity.
fn weight(value: f32, top: f32) -> f32 {
    return select(exp(value - top), 0.0, value <= LOWEST);
}
{%- endif %}

@compute @workgroup_size({{ wg }})
fn main(thread: Thread, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = group_index(group, groups);
    if (row >= p.rows) {
        return;
    }
    let i1 = row % p.y_ne1;
    let i2 = row / p.y_ne1 % p.y_ne2;
    let i3 = row / (p.y_ne1 * p.y_ne2);
    let x = i1 * p.x_nb1 + i2 * p.x_nb2 + i3 * p.x_nb3;
{%- if op == "cross_entropy" %}
    let labels = i1 * p.labels_nb1 + i2 * p.labels_nb2 + i3 * p.labels_nb3;
    var top = LOWEST;
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        top = max(top, x_load(x + i));
    }
    top = group_max(top, thread);
    var sum = 0.0;
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        sum += weight(x_load(x + i), top);
    }
    let part = 1.0 / group_sum(sum, thread);
    let scale = grad_load(0u) / f32(p.rows);
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        y_store(row * p.y_ne0 + i, (weight(x_load(x + i), top) * part - labels_load(labels + i)) * scale);
    }
{%- else %}
    let grad = i1 * p.grad_nb1 + i2 * p.grad_nb2 + i3 * p.grad_nb3;
    var sum = 0.0;
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        sum += x_load(x + i) * grad_load(grad + i);
    }
    let along = group_sum(sum, thread);
{%- if op == "rms_norm" %}
    sum = 0.0;
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        let value = x_load(x + i);
        sum += value * value;
    }
    let length = f32(p.y_ne0);
    let square = group_sum(sum, thread) / length + p.eps;
    let back = along / length / square;
    let scale = 1.0 / sqrt(square);
{%- endif %}
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
{%- if op == "rms_norm" %}
        y_store(row * p.y_ne0 + i, (grad_load(grad + i) - x_load(x + i) * back) * scale);
{%- else %}
        y_store(row * p.y_ne0 + i, p.scale * x_load(x + i) * (grad_load(grad + i) - along));
{%- endif %}
    }
{%- endif %}
}
