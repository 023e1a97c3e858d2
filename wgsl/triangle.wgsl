{#- TRI, DIAG_MASK_INF and DIAG_MASK_ZERO: elements on one side of a diagonal are kept, the others are `p.value`.

    Switch: lower (kept where column + left <= row + right, else where row + right <= column + left). -#}
{% from "index" import unravel, strided %}
{{ unravel() }}
{{ strided("src") }}
{{ strided("dst") }}

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
    let column = c.x + p.left;
    let row = c.y + p.right;
    // What is not kept may be NaN.
    if {% if lower %}column <= row{% else %}row <= column{% endif %} {
        dst_store(dst_at(c), src_load(src_at(c)));
    } else {
        dst_store(dst_at(c), p.value);
    }
}
