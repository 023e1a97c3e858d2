{#- NORM and RMS_NORM, alone or followed by a product with a weight row and a sum with a bias row. One workgroup per row.

    Switches: centred (NORM), has_w (MUL), has_b (ADD). -#}
{% import "reduce" as reduce %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", "f32", wg, subgroups) }}
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
    let length = f32(p.y_ne0);
    var sum = 0.0;
    var mean = 0.0;
{%- if centred %}
    // The mean first: the variance as a difference of two large sums would lose its digits.
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        sum += x_load(x + i);
    }
    mean = group_sum(sum, thread) / length;
    sum = 0.0;
{%- endif %}
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        let value = x_load(x + i) - mean;
        sum += value * value;
    }
    let scale = 1.0 / sqrt(group_sum(sum, thread) / length + p.eps);
{%- for role in ["w", "b"] if (role == "w" and has_w) or (role == "b" and has_b) %}
    let {{ role }} = (i1 % p.{{ role }}_ne1) * p.{{ role }}_nb1 + (i2 % p.{{ role }}_ne2) * p.{{ role }}_nb2 + (i3 % p.{{ role }}_ne3) * p.{{ role }}_nb3;
{%- endfor %}
    for (var i = thread.local; i < p.y_ne0; i += {{ wg }}u) {
        var value = (x_load(x + i) - mean) * scale;
{%- if has_w %}
        value *= w_load(w + i);
{%- endif %}
{%- if has_b %}
        value += b_load(b + i);
{%- endif %}
        y_store(row * p.y_ne0 + i, value);
    }
}
