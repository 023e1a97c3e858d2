{#- SUM, MEAN, REPEAT_BACK and COUNT_EQUAL: each element of the result is the sum, times a factor, of all elements of the
    source that are a multiple of the result's shape away from it; or the number of those that are equal in two sources.

    Switches: equal (COUNT_EQUAL), shared (one workgroup per element of the result, not one thread). -#}
{% import "reduce" as reduce %}
{% from "index" import unravel, strided %}
{%- set type = "u32" if equal else "f32" %}
{%- if shared %}
{{- reduce.thread(subgroups) }}
{{- reduce.sum("group_sum", type, wg, subgroups) }}
{%- endif %}
{{- unravel() }}
{{- strided("src") }}
{%- if equal %}{{ strided("other") }}{% endif %}
fn value(c: vec4<u32>) -> {{ type }} {
{%- if equal %}
    return select(0u, 1u, src_load(src_at(c)) == other_load(other_at(c)));
{%- else %}
    return src_load(src_at(c));
{%- endif %}
}

@compute @workgroup_size({{ wg }})
fn main(
{%- if shared %}
    thread: Thread,
{%- else %}
    @builtin(local_invocation_index) local: u32,
{%- endif %}
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
{%- if shared %}
    let own = group_index(group, groups);
    let first = thread.local;
{%- else %}
    let own = thread_index(group, groups, local);
    let first = 0u;
{%- endif %}
{%- set step = wg if shared else 1 %}
    if (own >= p.elements) {
        return;
    }
    let shape = vec4<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2, p.dst_ne3);
    let place = unravel(own, shape.xyz);
    // Sums of a few elements each are summed: one running sum of all would lose digits.
    var sum = {{ type }}(0);
    for (var start = first; start < p.parts; start += {{ 16 * step }}u) {
        var part = {{ type }}(0);
{%- for turn in range(16) %}
        if (start + {{ turn * step }}u < p.parts) {
            part += value(place + unravel(start + {{ turn * step }}u, vec3<u32>(p.repeat0, p.repeat1, p.repeat2)) * shape);
        }
{%- endfor %}
        sum += part;
    }
{%- if shared %}
    sum = group_sum(sum, thread);
    if (thread.local > 0u) {
        return;
    }
{%- endif %}
{%- if equal %}
    dst_store_words(own, bitcast<i32>(sum), 0);
{%- else %}
    dst_store(own, sum * p.factor);
{%- endif %}
}
