{#- ACC and SET, on the window of what is already a copy of source 0: a thread per element of source 1.

    Switch: adds. No two threads have the same place, so that each may read what it writes. -#}
{% from "index" import unravel, strided %}
{{ unravel() }}
{{ strided("b") }}
{{ strided("window") }}

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
    let c = unravel(i, vec3<u32>(p.b_ne0, p.b_ne1, p.b_ne2));
    let at = p.window_start + window_at(c);
    {% if adds %}
    dst_store(at, dst_data[p.dst_offset + at] + b_load(b_at(c)));
    {% else %}
    dst_store(at, b_load(b_at(c)));
    {% endif %}
}
