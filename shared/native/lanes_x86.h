/* Four AES blocks side by side on x86: one 512-bit register, two of 256 bits, or four of 128 bits.
 *
 * The body in dpf_body.h is written once against V4 and the v_* functions; this file is included once per
 * instruction set with LANES_BITS set to 128 (AES-NI), 256 or 512 (VAES). IN_FLIGHT is the number of V4 that the body
 * processes at once: eight registers of blocks hide the latency of the AES instruction.
 */
#include <immintrin.h>

#undef TARGET
#undef NAME
#undef V4
#undef IN_FLIGHT
#undef REGISTERS
#undef REG
#undef R_OP
#undef R_LOAD
#undef R_STORE
#undef R_XOR
#undef R_AND
#undef R_BCAST
#undef R_AES
#undef R_AESLAST
#undef R_SWAP
#undef R_FIRST
#undef R_BYTES
#undef LANE_FN
#undef EACH

#if LANES_BITS == 512
#define TARGET __attribute__((target("aes,vaes,avx2,avx512f,avx512bw,avx512dq,avx512vl")))
#define NAME(x) x##_vaes512
#define REGISTERS 1
#define IN_FLIGHT 8
#define REG __m512i
#define R_OP(op) _mm512_##op
#define R_LOAD(p) _mm512_loadu_si512((const void *)(p))
#define R_STORE(p, x) _mm512_storeu_si512((void *)(p), x)
#define R_XOR _mm512_xor_si512
#define R_AND _mm512_and_si512
#define R_BCAST(p) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(p)))
#define R_AES _mm512_aesenc_epi128
#define R_AESLAST _mm512_aesenclast_epi128
#define R_SWAP(x) _mm512_shuffle_epi32(x, (_MM_PERM_ENUM)0x4E)
#define R_FIRST(x) _mm512_shuffle_epi32(x, (_MM_PERM_ENUM)0x00)
#elif LANES_BITS == 256
#define TARGET __attribute__((target("aes,vaes,avx2")))
#define NAME(x) x##_vaes256
#define REGISTERS 2
#define IN_FLIGHT 4
#define REG __m256i
#define R_OP(op) _mm256_##op
#define R_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define R_STORE(p, x) _mm256_storeu_si256((__m256i *)(p), x)
#define R_XOR _mm256_xor_si256
#define R_AND _mm256_and_si256
#define R_BCAST(p) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(p)))
#define R_AES _mm256_aesenc_epi128
#define R_AESLAST _mm256_aesenclast_epi128
#define R_SWAP(x) _mm256_shuffle_epi32(x, 0x4E)
#define R_FIRST(x) _mm256_shuffle_epi32(x, 0x00)
#else
#define TARGET __attribute__((target("aes,sse4.1")))
#define NAME(x) x##_aesni
#define REGISTERS 4
#define IN_FLIGHT 2
#define REG __m128i
#define R_OP(op) _mm_##op
#define R_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define R_STORE(p, x) _mm_storeu_si128((__m128i *)(p), x)
#define R_XOR _mm_xor_si128
#define R_AND _mm_and_si128
#define R_BCAST(p) _mm_loadu_si128((const __m128i *)(p))
#define R_AES _mm_aesenc_si128
#define R_AESLAST _mm_aesenclast_si128
#define R_SWAP(x) _mm_shuffle_epi32(x, 0x4E)
#define R_FIRST(x) _mm_shuffle_epi32(x, 0x00)
#endif

#define LANE_FN TARGET static inline __attribute__((always_inline))
#define V4 NAME(v4)
typedef struct { REG r[REGISTERS]; } V4;

#define EACH(expression) V4 out; for (int i = 0; i < REGISTERS; i++) out.r[i] = (expression); return out
#define R_BYTES ((int)sizeof(REG))

LANE_FN V4 NAME(v_load)(const uint8_t *p) { EACH(R_LOAD(p + i * R_BYTES)); }
LANE_FN void NAME(v_store)(uint8_t *p, V4 a) { for (int i = 0; i < REGISTERS; i++) R_STORE(p + i * R_BYTES, a.r[i]); }
LANE_FN V4 NAME(v_bcast)(const uint8_t *p) { EACH(R_BCAST(p)); }
LANE_FN V4 NAME(v_xor)(V4 a, V4 b) { EACH(R_XOR(a.r[i], b.r[i])); }
LANE_FN V4 NAME(v_and)(V4 a, V4 b) { EACH(R_AND(a.r[i], b.r[i])); }
LANE_FN V4 NAME(v_add32)(V4 a, V4 b) { EACH(R_OP(add_epi32)(a.r[i], b.r[i])); }
LANE_FN V4 NAME(v_sub32)(V4 a, V4 b) { EACH(R_OP(sub_epi32)(a.r[i], b.r[i])); }
LANE_FN V4 NAME(v_add64)(V4 a, V4 b) { EACH(R_OP(add_epi64)(a.r[i], b.r[i])); }
LANE_FN V4 NAME(v_sub64)(V4 a, V4 b) { EACH(R_OP(sub_epi64)(a.r[i], b.r[i])); }
LANE_FN V4 NAME(v_aes)(V4 a, V4 k) { EACH(R_AES(a.r[i], k.r[i])); }
LANE_FN V4 NAME(v_aeslast)(V4 a, V4 k) { EACH(R_AESLAST(a.r[i], k.r[i])); }

/* sigma(hi || lo) = (hi ^ lo || hi) */
LANE_FN V4 NAME(v_sigma)(V4 a, V4 high) { EACH(R_XOR(R_SWAP(a.r[i]), R_AND(a.r[i], high.r[i]))); }

/* All ones in every block whose lowest bit is set. (And and subtract: shifts would compete with AES for a port.) */
LANE_FN V4 NAME(v_control)(V4 a) {
    const REG one = R_OP(set1_epi32)(1), zero = R_XOR(one, one);
    EACH(R_OP(sub_epi32)(zero, R_AND(R_FIRST(a.r[i]), one)));
}

/* All ones in every block whose first 32-bit word has bit `bit` set. */
LANE_FN V4 NAME(v_bit)(V4 a, int bit) {
    EACH(R_OP(srai_epi32)(R_OP(sll_epi32)(R_FIRST(a.r[i]), _mm_cvtsi32_si128(31 - bit)), 31));
}

/* acc + x or acc - x in the lanes whose bit is set, the lowest bit first; other lanes keep acc. The bits are read
 * from memory as one whole lane, of which a V4 uses the lowest 16 (lanes of 32 bits) or 8 (of 64). */
#if LANES_BITS == 512
LANE_FN V4 NAME(v_add32_where)(V4 acc, const uint8_t *bits, V4 x) {
    uint16_t mask;
    memcpy(&mask, bits, sizeof mask);
    return (V4){{_mm512_mask_add_epi32(acc.r[0], mask, acc.r[0], x.r[0])}};
}
LANE_FN V4 NAME(v_sub32_where)(V4 acc, const uint8_t *bits, V4 x) {
    uint16_t mask;
    memcpy(&mask, bits, sizeof mask);
    return (V4){{_mm512_mask_sub_epi32(acc.r[0], mask, acc.r[0], x.r[0])}};
}
LANE_FN V4 NAME(v_add64_where)(V4 acc, const uint8_t *bits, V4 x) {
    return (V4){{_mm512_mask_add_epi64(acc.r[0], *bits, acc.r[0], x.r[0])}};
}
LANE_FN V4 NAME(v_sub64_where)(V4 acc, const uint8_t *bits, V4 x) {
    return (V4){{_mm512_mask_sub_epi64(acc.r[0], *bits, acc.r[0], x.r[0])}};
}
#else
static const uint32_t NAME(bits32)[16] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
static const uint64_t NAME(bits64)[8] = {1, 2, 4, 8, 16, 32, 64, 128};

/* x in the lanes whose bit is set, zero elsewhere. */
LANE_FN V4 NAME(v_where32)(const uint8_t *bits, V4 x) {
    int32_t word;
    memcpy(&word, bits, sizeof word);
    const REG all = R_OP(set1_epi32)(word);
    const V4 one = NAME(v_load)((const uint8_t *)NAME(bits32));
    EACH(R_AND(R_OP(cmpeq_epi32)(R_AND(all, one.r[i]), one.r[i]), x.r[i]));
}
LANE_FN V4 NAME(v_where64)(const uint8_t *bits, V4 x) {
    long long word;
    memcpy(&word, bits, sizeof word);
    const REG all = R_OP(set1_epi64x)(word);
    const V4 one = NAME(v_load)((const uint8_t *)NAME(bits64));
    EACH(R_AND(R_OP(cmpeq_epi64)(R_AND(all, one.r[i]), one.r[i]), x.r[i]));
}
#define V_WHERE(operation, lane)                                                                   \
    LANE_FN V4 NAME(v_##operation##lane##_where)(V4 acc, const uint8_t *bits, V4 x) {              \
        return NAME(v_##operation##lane)(acc, NAME(v_where##lane)(bits, x));                       \
    }
V_WHERE(add, 32)
V_WHERE(sub, 32)
V_WHERE(add, 64)
V_WHERE(sub, 64)
#undef V_WHERE
#endif

/* SubWord of a word that is in all four columns: with equal columns ShiftRows changes nothing. */
LANE_FN uint32_t NAME(sub_word)(uint32_t word) {
    return (uint32_t)_mm_cvtsi128_si32(_mm_aesenclast_si128(_mm_set1_epi32((int)word), _mm_setzero_si128()));
}
