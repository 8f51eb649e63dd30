"""Voices of the default evaluation: recordings of telephone exchanges, fetched."""

SOUNDS = "usr/share/asterisk/sounds"

VOICES = {
    "allison__en": f"fetch:voices_en/{SOUNDS}/en_US_f_Allison",
    "allison__es": f"fetch:voices_es/{SOUNDS}/es_MX_f_Allison",
    "june": f"fetch:voices_fr/{SOUNDS}/fr_CA_f_June",
    "carlo": f"fetch:voices_it/{SOUNDS}/it_IT_m_Carlo",
    "maxim": f"fetch:voices_ru/{SOUNDS}/ru_RU_f_IvrvoiceRU",
}
"""Folders by speaker; Allison Smith speaks English and Spanish."""

PAIR = {
    "first": f"{VOICES['allison__en']}/agent-alreadyon.wav",
    "second": f"{VOICES['allison__es']}/agent-alreadyon.wav",
}
"""Two recordings of one speaker, in two languages."""

DRAWN = {"shortest": 2.0, "leave_out": ["silence/*", "beep*", "*tone*"]}
"""Limits on the recordings that are drawn: they are long, and they are speech."""
