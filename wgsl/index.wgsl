{#- Where elements are. Every macro takes the role whose parameters it reads. -#}

{#- `unravel(i, ne)`: element `i` of a shape in row-major order, as coordinates; the last size is not needed. -#}
{% macro unravel() %}
fn unravel(i: u32, ne: vec3<u32>) -> vec4<u32> {
    let row = i / ne.x;
    let plane = row / ne.y;
    let cube = plane / ne.z;
    return vec4<u32>(i - row * ne.x, row - plane * ne.y, plane - cube * ne.z, cube);
}
{% endmacro %}

{#- `ROLE_at(c)`: the element at coordinates, by the strides ROLE_nb0 to ROLE_nb3. -#}
{% macro strided(role) %}
fn {{ role }}_at(c: vec4<u32>) -> u32 {
    return c.x * p.{{ role }}_nb0 + c.y * p.{{ role }}_nb1 + c.z * p.{{ role }}_nb2 + c.w * p.{{ role }}_nb3;
}
{% endmacro %}

{#- `ROLE_at(c)` for a tensor of shape ROLE_ne0 to ROLE_ne3 that is repeated to fill a larger one. -#}
{% macro repeated(role) %}
fn {{ role }}_at(c: vec4<u32>) -> u32 {
    return (c.x % p.{{ role }}_ne0) * p.{{ role }}_nb0
        + (c.y % p.{{ role }}_ne1) * p.{{ role }}_nb1
        + (c.z % p.{{ role }}_ne2) * p.{{ role }}_nb2
        + (c.w % p.{{ role }}_ne3) * p.{{ role }}_nb3;
}
{% endmacro %}
