"""What the library has, in the form in which shap and captum take it."""
