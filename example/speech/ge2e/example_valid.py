"""Evaluate the voice encoder: are pairs of recordings told apart by who speaks?"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speaker_verification import SPEAKER_VERIFICATION

HERE = Path(__file__).resolve().parent
CKPT = HERE / "voice_encoder_dyn.onnx"
SOUNDS = "usr/share/asterisk/sounds"
VOICES = {  # Allison Smith speaks English and Spanish
    "allison__en": f"fetch:voices_en/{SOUNDS}/en_US_f_Allison",
    "allison__es": f"fetch:voices_es/{SOUNDS}/es_MX_f_Allison",
    "june": f"fetch:voices_fr/{SOUNDS}/fr_CA_f_June",
    "carlo": f"fetch:voices_it/{SOUNDS}/it_IT_m_Carlo",
    "maxim": f"fetch:voices_ru/{SOUNDS}/ru_RU_f_IvrvoiceRU",
}
NO_SPEECH = {"leave_out": ["silence/*", "beep*", "*tone*"]}

if __name__ == "__main__":
    cli.valid(__doc__, SPEAKER_VERIFICATION, ckpt=CKPT, data_path=VOICES, batch_size=64, shortest=2.0, **NO_SPEECH)
