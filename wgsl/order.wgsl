{#- The order of floats, for kernels that sort and pick. -#}

{%- macro order(descending) %}
// Integers in the order of the floats: both zeros equal, every NaN above all numbers.
fn key(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    var order = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
    order = select(order, 0x80000000u, magnitude == 0u);
    order = select(order, 0xffffffffu, magnitude > 0x7f800000u);
    return {% if descending %}~order{% else %}order{% endif %};
}

// Whether the element (key, index) comes before another.
fn before(a: u32, at_a: u32, b: u32, at_b: u32) -> bool {
    return a < b || (a == b && at_a < at_b);
}
{% endmacro %}
