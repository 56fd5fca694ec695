"""Tests of encodings of short texts, in which a few letters tell the language."""

import pytest

from delf_confined.charsets import guess

SHORT = {
    "cp1250": [
        "Łódź", "Kraków, Łódź, Gdańsk", "Zażółć gęślą jaźń", "Książka, 12 zł", "Świętokrzyskie",
        "Příliš žluťoučký kůň", "jméno;město\nJiří;Plzeň\n", "České Budějovice",
        "Név;Város\nErdős;Székesfehérvár\n",
    ],
    "iso8859-2": ["Łódź", "Wrocław\nPoznań\nŁódź\n", "Książka, 12 zł"],
    "cp1254": ["İstanbul, Şişli", "ad;şehir\nAyşe;İzmir\nÇağrı;Eskişehir\n", "Günaydın, teşekkürler"],
    "cp1257": ["Šiauliai", "Vardas;Miestas\nŽygimantas;Panevėžys\n"],
    "cp1251": ["Иван", "Цена, руб.", "имя;город\nИван;Москва\n"],
    "koi8-r": ["Иван", "Привет"],
    "koi8-u": ["Привіт, як справи сьогодні, їжак?"],
    "iso8859-5": ["Привет мир, как дела сегодня?"],
    "cp866": ["Иван", "Привет, как дела"],
    "cp1253": ["Αθήνα", "Τιμή: 12 €", "Καλημέρα"],
    "cp1255": ["שלום", "שם;עיר\nדוד;ירושלים\n"],
    "cp932": ["東京", "名前,都市\n田中,東京\n", "価格", "こんにちは"],
    "euc_jp": ["こんにちは", "りんご"],
    "cp850": ["Müller", "Straße;Größe\nJürgen;Köln\n"],
    "cp1252": [
        "mañana", "São Paulo", "Müller", "5 €", "l’été", "œuvre", "Ångström", "Größe in m²", "12 °C",
        "¿Dónde está?", "señal nº 5", "ÄPFEL", "Müller, José, São Paulo, Ærø",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "text"), [(name, text) for name, texts in SHORT.items() for text in texts]
)
def test_encoding_of_a_short_text_is_guessed_correctly(encoding, text):
    data = text.encode(encoding)
    assert data.decode(guess(data)[0]) == text
