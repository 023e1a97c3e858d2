{#- SOFT_MAX over rows, with an optional mask (broadcast over heads and batch) and optional sinks. One workgroup per row.

    Switches: has_mask, has_sinks. A row with nothing but masked elements gives zeros. -#}
{% import "reduce" as reduce %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", "f32", wg, subgroups) }}
{{- reduce.largest("group_max", "f32", wg, subgroups) }}
// Below every unmasked logit; WGSL has no infinity to write down.
const LOWEST = -3.0e38;

fn logit(x: u32, mask: u32, slope: f32, i: u32) -> f32 {
{%- if has_mask %}
    // A masked element may be anything, NaN too.
    let bias = slope * mask_load(mask + i);
    return select(x_load(x + i) * p.scale + bias, bias, bias <= LOWEST);
{%- else %}
    return x_load(x + i) * p.scale;
{%- endif %}
}

// e^(value - top), and 0 for a masked value even where everything is masked.
fn weight(value: f32, top: f32) -> f32 {
    return select(exp(value - top), 0.0, value <= LOWEST);
}

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
    var mask = 0u;
    var slope = 1.0;
{%- if has_mask %}
    mask = i1 * p.mask_nb1 + (i2 % p.mask_ne2) * p.mask_nb2 + (i3 % p.mask_ne3) * p.mask_nb3;
    slope = exp2(select(p.late_slope * f32(2u * (i2 - min(i2, p.early_heads)) + 1u), p.early_slope * f32(i2 + 1u), i2 < p.early_heads));
{%- endif %}
    var top = LOWEST;
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        top = max(top, logit(x, mask, slope, i));
    }
    top = group_max(top, thread);
{%- if has_sinks %}
    let sink = sinks_load(i2);
    top = max(top, sink);
{%- endif %}
    var sum = 0.0;
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        sum += weight(logit(x, mask, slope, i), top);
    }
    sum = group_sum(sum, thread);
{%- if has_sinks %}
    sum += exp(sink - top);
{%- endif %}
    let scale = select(1.0 / sum, 0.0, sum == 0.0);
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        y_store(row * p.y_ne0 + i, weight(logit(x, mask, slope, i), top) * scale);
    }
}
