//! The quantized types: blocks of elements that share scales.

/// How a block of quantized elements lies in memory. Names, sizes and layouts are ggml's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockFormat {
    /// 4 bits and a scale.
    Q4_0,
    /// 4 bits, a scale and a minimum.
    Q4_1,
    /// 5 bits and a scale.
    Q5_0,
    /// 5 bits, a scale and a minimum.
    Q5_1,
    /// 8 bits and a scale.
    Q8_0,
    /// 2 bits; 4-bit scales and minima for every 16 elements.
    Q2K,
    /// 3 bits; 6-bit scales for every 16 elements.
    Q3K,
    /// 4 bits; 6-bit scales and minima for every 32 elements.
    Q4K,
    /// 5 bits; 6-bit scales and minima for every 32 elements.
    Q5K,
    /// 6 bits; 8-bit scales for every 16 elements.
    Q6K,
    /// Signs apart, points of a grid of 256 for every 8 elements.
    Iq2Xxs,
    /// Signs apart, points of a grid of 512 for every 8 elements.
    Iq2Xs,
    /// Signs apart, points of a grid of 256 for every 4 elements.
    Iq3Xxs,
    /// Points of a grid of 2048 for every 8 elements.
    Iq1S,
    /// 4 bits that choose among 16 uneven values, and a scale.
    Iq4Nl,
    /// Signs apart, points of a grid of 512 for every 4 elements.
    Iq3S,
    /// Signs apart, points of a grid of 1024 for every 8 elements.
    Iq2S,
    /// 4 bits that choose among 16 uneven values; 6-bit scales for every 32 elements.
    Iq4Xs,
    /// Points of a grid of 2048 for every 8 elements, with a scale for every 16.
    Iq1M,
    /// −1, 0 or 1, five to a byte, and a scale.
    Tq1_0,
    /// −1, 0 or 1, four to a byte, and a scale.
    Tq2_0,
    /// The 4-bit floats of the OCP Microscaling formats, and a power of two.
    Mxfp4,
}

/// What is known of a format: ggml's name and number of it, elements and bytes of a block.
struct Facts {
    name: &'static str,
    id: u8,
    elements: usize,
    bytes: usize,
}

impl BlockFormat {
    /// Every format there is, in the order of their numbers.
    pub const ALL: [Self; 22] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq2Xxs,
        Self::Iq2Xs,
        Self::Iq3Xxs,
        Self::Iq1S,
        Self::Iq4Nl,
        Self::Iq3S,
        Self::Iq2S,
        Self::Iq4Xs,
        Self::Iq1M,
        Self::Tq1_0,
        Self::Tq2_0,
        Self::Mxfp4,
    ];

    const fn facts(self) -> Facts {
        const fn row(name: &'static str, id: u8, elements: usize, bytes: usize) -> Facts {
            Facts { name, id, elements, bytes }
        }
        match self {
            Self::Q4_0 => row("q4_0", 2, 32, 18),
            Self::Q4_1 => row("q4_1", 3, 32, 20),
            Self::Q5_0 => row("q5_0", 6, 32, 22),
            Self::Q5_1 => row("q5_1", 7, 32, 24),
            Self::Q8_0 => row("q8_0", 8, 32, 34),
            Self::Q2K => row("q2_K", 10, 256, 84),
            Self::Q3K => row("q3_K", 11, 256, 110),
            Self::Q4K => row("q4_K", 12, 256, 144),
            Self::Q5K => row("q5_K", 13, 256, 176),
            Self::Q6K => row("q6_K", 14, 256, 210),
            Self::Iq2Xxs => row("iq2_xxs", 16, 256, 66),
            Self::Iq2Xs => row("iq2_xs", 17, 256, 74),
            Self::Iq3Xxs => row("iq3_xxs", 18, 256, 98),
            Self::Iq1S => row("iq1_s", 19, 256, 50),
            Self::Iq4Nl => row("iq4_nl", 20, 32, 18),
            Self::Iq3S => row("iq3_s", 21, 256, 110),
            Self::Iq2S => row("iq2_s", 22, 256, 82),
            Self::Iq4Xs => row("iq4_xs", 23, 256, 136),
            Self::Iq1M => row("iq1_m", 29, 256, 56),
            Self::Tq1_0 => row("tq1_0", 34, 256, 54),
            Self::Tq2_0 => row("tq2_0", 35, 256, 66),
            Self::Mxfp4 => row("mxfp4", 39, 32, 17),
        }
    }

    /// ggml's name.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// ggml's number.
    pub const fn id(self) -> u8 {
        self.facts().id
    }

    /// Elements in a block.
    pub const fn elements(self) -> usize {
        self.facts().elements
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        self.facts().bytes
    }

    /// Whether operations of a graph write it: the formats that ggml's caches can have.
    pub const fn is_writable(self) -> bool {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::Iq4Nl => true,
            Self::Q2K
            | Self::Q3K
            | Self::Q4K
            | Self::Q5K
            | Self::Q6K
            | Self::Iq2Xxs
            | Self::Iq2Xs
            | Self::Iq3Xxs
            | Self::Iq1S
            | Self::Iq3S
            | Self::Iq2S
            | Self::Iq4Xs
            | Self::Iq1M
            | Self::Tq1_0
            | Self::Tq2_0
            | Self::Mxfp4 => false,
        }
    }
}

impl std::fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
