/* Four AES blocks side by side on x86: one 512-bit register, two of 256 bits, or four of 128 bits.
 *
 * The body in dpf_body.h is written once against V4 and the v_* functions; this file is included once per
 * instruction set with LANES_BITS set to 128 (AES-NI), 256 or 512 (VAES). IN_FLIGHT says how many V4 the body
 * keeps going at once: eight registers of blocks hide the latency of the AES instruction.
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

/* SubWord of a word that stands in all four columns: with equal columns ShiftRows changes nothing. */
LANE_FN uint32_t NAME(sub_word)(uint32_t word) {
    return (uint32_t)_mm_cvtsi128_si32(_mm_aesenclast_si128(_mm_set1_epi32((int)word), _mm_setzero_si128()));
}
