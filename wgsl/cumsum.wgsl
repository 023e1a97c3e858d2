{#- CUMSUM: one workgroup per row, which goes along it in blocks of a few elements for each thread. -#}
{%- set items = 8 %}
var<workgroup> parts: array<f32, {{ wg }}>;

@compute @workgroup_size({{ wg }})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let row = group_index(group, groups);
    if (row >= p.rows) {
        return;
    }
    let x = row % p.y_ne1 * p.x_nb1 + row / p.y_ne1 % p.y_ne2 * p.x_nb2 + row / (p.y_ne1 * p.y_ne2) * p.x_nb3;
    // The sum of all blocks before.
    var carry = 0.0;
    for (var start = 0u; start < p.y_ne0; start += {{ wg * items }}u) {
        let first = start + local * {{ items }}u;
        let end = min(p.y_ne0, first + {{ items }}u);
        var own = 0.0;
{%- for item in range(items) %}
        if (first + {{ item }}u < end) {
            own += x_load(x + first + {{ item }}u);
        }
{%- endfor %}
        parts[local] = own;
{%- for step in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] if step < wg %}
        workgroupBarrier();
        if (local >= {{ step }}u) {
            own += parts[local - {{ step }}u];
        }
        workgroupBarrier();
        parts[local] = own;
{%- endfor %}
        workgroupBarrier();
        var sum = carry;
        if (local > 0u) {
            sum += parts[local - 1u];
        }
{%- for item in range(items) %}
        if (first + {{ item }}u < end) {
            sum += x_load(x + first + {{ item }}u);
            y_store(row * p.y_ne0 + first + {{ item }}u, sum);
        }
{%- endfor %}
        carry += parts[{{ wg - 1 }}u];
        workgroupBarrier();
    }
}
