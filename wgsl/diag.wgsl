{#- DIAG. -#}
{% from "index" import unravel %}
{{ unravel() }}

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
    let c = unravel(i, vec3<u32>(p.dst_ne0, p.dst_ne1, p.dst_ne2));
    if c.x == c.y {
        dst_store(i, src_load(c.x * p.src_nb0 + c.z * p.src_nb2 + c.w * p.src_nb3));
    } else {
        dst_store(i, 0.0);
    }
}
