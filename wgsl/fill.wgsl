{#- FILL. Switch: dense (the result). -#}
{% from "index" import unravel, strided %}
{% if not dense %}{{ unravel() }}{{ strided("dst") }}{% endif %}

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
    {% if dense %}
    dst_store(i, p.value);
    {% else %}
    dst_store(dst_at(unravel(i, vec3<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2))), p.value);
    {% endif %}
}
