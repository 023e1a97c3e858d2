{% from "index" import unravel, strided %}
{{ unravel() }}
{{ strided("a") }}
{{ strided("b") }}
{% macro move(role, at) %}
{% if wide %}
dst_store_words(i, {{ role }}_load({{ at }}), {{ role }}_load_high({{ at }}));
{% else %}
dst_store(i, {{ role }}_load({{ at }}));
{% endif %}
{% endmacro %}

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = thread_index(group, groups, local);
    if i >= p.count {
        return;
    }
    var c = unravel(i, vec3<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2));
    if c.{{ axis }} < p.split {
        let at = a_at(c);
        {{ move("a", "at") }}
    } else {
        c.{{ axis }} -= p.split;
        let at = b_at(c);
        {{ move("b", "at") }}
    }
}
